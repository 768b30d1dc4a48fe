import { expect, test } from 'vitest';
import type { Template } from '../src/lib/openapi';
import { bestOf, cardOf, entriesOf, htmlLang, isRtl, kindsOf, matching, nameOf, said, shapeOf, tally, titleOf, type Shape } from '../src/lib/template';

test('a text is in the language of the page, else in one of the template, else in any', () => {
  for (const [labels, page, locales, want] of [
    [{ en: 'A', zh: '甲' }, 'zh', ['en', 'zh'], '甲'],
    [{ zh: '甲' }, 'en', ['zh'], '甲'],
    [{ 'pt-BR': 'a', de: 'ä' }, 'en', ['de', 'pt-BR'], 'ä'],
    [{ 'en-GB': 'colour' }, 'en', [], 'colour'],
    [{ 'zh-TW': '繁', 'zh-CN': '简' }, 'zh', [], '简'],
    [{ 'zh-Hant': '繁' }, 'zh', ['en'], '繁'],
    [{ fr: 'a' }, 'en', ['de'], 'a'],
    [{ en: 'constructor' }, 'constructor', ['toString'], 'constructor'],
    [{}, 'en', ['en'], ''],
    [undefined, 'en', [], ''],
  ] as const) {
    expect(said(labels as Record<string, string>, page, locales).text, JSON.stringify(labels)).toBe(want);
  }
  expect(said({ zh: '甲' }, 'en', ['zh']).lang).toBe('zh');
  expect(bestOf('en', ['de'])).toBeUndefined();
  expect(bestOf('not a language', ['de'])).toBeUndefined();
});

test('a language has its script, its direction and its own name', () => {
  expect(['zh', 'zh-CN', 'zh-TW', 'en-GB', '!'].map(htmlLang)).toEqual(['zh-Hans', 'zh-Hans', 'zh-Hant', 'en-GB', '!']);
  expect(['ar', 'he', 'fa', 'ur', 'en', 'zh', 'uz', 'uz-Arab', '!'].filter(isRtl)).toEqual(['ar', 'he', 'fa', 'ur', 'uz-Arab']);
  expect(['en', 'zh', 'de', '!'].map(nameOf)).toEqual(['English', '中文', 'Deutsch', '!']);
});

const row = {
  type: 'object', required: ['kind', 'what'],
  properties: { kind: { enum: ['a', 'b'] }, what: { type: 'string', title: 'What' }, done: { type: 'boolean', title: 'Done' }, cost: { type: 'number', title: 'Cost' }, why: { type: 'string' } },
};

test('a value has the titles and the order of its schema, wherever the schema has them', () => {
  const named = (s: Shape, v: object) => entriesOf(v as Record<string, unknown>, s).map((e) => [e.key, titleOf(e.shape)]);
  const value = { extra: 1, why: 'x', what: 'y', cost: 0, kind: '', done: false, list: [], nothing: { a: null } };
  const want = [['what', 'What'], ['done', 'Done'], ['cost', 'Cost'], ['why', ''], ['extra', '']];
  for (const schema of [
    row, { $ref: '#/$defs/row', $defs: { row } }, { anyOf: [{ type: 'null' }, row] }, { allOf: [{ $ref: '#/$defs/a~1b' }], $defs: { 'a/b': row } }, { oneOf: [{ type: 'null' }, { $ref: '#/$defs/x' }], $defs: { x: row } },
  ]) expect(named(shapeOf(schema), value), JSON.stringify(schema)).toEqual(want);
  // Any JSON is a schema for the page: it is a file of another author, or the template is gone.
  const loop = { $ref: '#', allOf: [{ $ref: '#/allOf/0' }], properties: { a: { $ref: '#/properties/a' } } };
  for (const schema of [null, undefined, true, 'x', [], loop, { properties: [] }, { $ref: 'other.json#/x' }, { $ref: '#/%E0' }, { properties: { a: 1 }, items: 3 }]) {
    expect(named(shapeOf(schema), { a: 1, constructor: 2 })).toEqual([['a', ''], ['constructor', '']]);
  }
});

test('an object of a list is a card: its text, its yes or no, what is short, and the rest', () => {
  const card = (value: object, schema: unknown = row) => {
    const c = cardOf(value as Record<string, unknown>, shapeOf(schema));
    return [c.heading?.key, c.check?.key, c.short.map((e) => e.key), c.rest.map((e) => e.key)];
  };
  expect(card({ kind: 'a', what: 'w', done: true, cost: 2, why: 'x'.repeat(80) })).toEqual(['what', 'done', ['kind', 'cost'], ['why']]);
  expect(card({ what: 'w', done: false, why: 'short' })).toEqual(['what', 'done', [], ['why']]);
  expect(card({ why: 'no other text', cost: 2 })).toEqual(['why', undefined, ['cost'], []]);
  expect(card({ a: true, b: false, c: ['x'] }, null)).toEqual([undefined, undefined, ['a', 'b'], ['c']]);
  expect(card({ from: 'Oslo', to: 'Rome', stops: [{ at: 'Kiel' }] }, null)).toEqual(['from', undefined, ['to'], ['stops']]);
});

test('a list of which all state the same yes or no is counted, and no other', () => {
  const shape = shapeOf(row);
  expect(tally([{ what: 'a', done: true }, { what: 'b', done: false }, { what: 'c', done: true }], shape)).toMatchObject({ yes: 2, of: { key: 'done' } });
  for (const list of [[], ['a'], [{ what: 'a' }], [{ done: true }, { what: 'b' }], [{ done: true }, { other: true }], [{ done: true, more: false }]]) expect(tally(list, shape)).toBeNull();
});

test('items are grouped in the order of the template, those that it does not know are the last', () => {
  const t = { items: [{ id: 'b', schema: row }, { id: 'a', schema: {} }, { id: 'none', schema: {} }] } as unknown as Template;
  const items = ['x', 'a', 'b', 'a', 'constructor'].map((kind, i) => ({ kind, value: i }));
  expect(kindsOf(items, t).map((k) => [k.id, k.values])).toEqual([['b', [2]], ['a', [1, 3]], ['x', [0]], ['constructor', [4]]]);
  expect(kindsOf(items, undefined).map((k) => k.id)).toEqual(['x', 'a', 'b', 'constructor']);
});

test('templates are found by all words of a search, whatever their case', () => {
  const all = ['Ticket summary', 'Translate a document', 'Summary of a DOCUMENT'].map((name) => ({ name }) as unknown as Template);
  const found = (words: string) => matching(all, words, (t) => t.name).map((t) => t.name);
  expect(found('document SUMMARY')).toEqual(['Summary of a DOCUMENT']);
  expect(found('  ')).toHaveLength(3);
  expect(found('none')).toEqual([]);
});
