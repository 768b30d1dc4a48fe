import { expect, test } from 'vitest';
import { newId, problemOf } from '../src/lib/api';
import type { Template } from '../src/lib/openapi';
import { accepted, chosenOf, emptyValue, fieldAt, fieldsOf, inspect, isFilled, maxTextBytes, measured, takes, variablesOf, type Upload } from '../src/lib/form';

/** A template with variables in short: name, then what differs from an optional text in the request. */
const of = (...variables: [name: string, more?: object][]) => ({
  name: 'any', title: { en: 'Any' }, locales: ['en'], mode: 'batch', credits: 1, version: '1', steps: [], stages: [], items: [],
  variables: variables.map(([name, more = {}]) => ({ name, kind: 'document', kinds: ['text', 'text_asset'], required: false, label: { en: name }, ...more })),
}) as unknown as Template;
const photo = { kind: 'image', kinds: ['image_asset'] };

const claim = of(
  ['letter', { required: true }], ['receipt', { group: 'proof' }], ['receiptPhoto', { ...photo, group: 'proof' }], ['scan', { ...photo, group: 'proof' }],
  ['notes', { kind: 'text', kinds: ['text'] }],
);

test('a group with one text is a field that takes text or an image', () => {
  const [letter, receipt, notes] = claim.variables.filter((v) => !v.name.match(/Photo|scan/));
  expect(fieldsOf(claim)).toEqual([
    { key: 'letter', text: 'letter', image: '', documents: true, brief: false, required: true, group: '', of: letter },
    { key: 'receipt', text: 'receipt', image: 'receiptPhoto', documents: true, brief: false, required: true, group: '', of: receipt },
    { key: 'notes', text: 'notes', image: '', documents: false, brief: true, required: false, group: '', of: notes },
  ]);
});

test('a group of several texts, or of images only, is a choice of which one field counts', () => {
  const keys = (t: Template) => fieldsOf(t).map((f) => [f.key, f.text, f.image, f.group, f.required]);
  const texts = of(['terms', { group: 'g' }], ['other'], ['number', { group: 'g', kind: 'text' }], ['page', { ...photo, group: 'g' }]);
  expect(keys(texts)).toEqual([['terms', 'terms', 'page', 'g', true], ['number', 'number', '', 'g', true], ['other', 'other', '', '', false]]);
  expect(keys(of(['front', { ...photo, group: 'g' }], ['back', { ...photo, group: 'g' }]))).toEqual([['front', '', 'front', 'g', true], ['back', '', 'back', 'g', true]]);
  const chosen = (chosen: Record<string, string>, ...filled: string[]) => chosenOf(fieldsOf(texts), chosen, (k) => filled.includes(k)).map((f) => f.key);
  expect(chosen({})).toEqual(['terms', 'other']);
  expect(chosen({}, 'number')).toEqual(['number', 'other']); // of a task that is edited
  expect(chosen({ g: 'terms' }, 'number')).toEqual(['terms', 'other']);
  expect(chosen({ g: 'gone' })).toEqual(['terms', 'other']);
  expect(fieldAt(texts, 'variables.page')).toBe('terms');
  expect(fieldAt(texts, 'variables.number')).toBe('number');
});

test('fieldAt maps a problem path to its field', () => {
  expect(fieldAt(claim, 'variables.scan')).toBe('receipt');
  expect(fieldAt(claim, 'variables.letter.assetId')).toBe('letter');
  expect(fieldAt(claim, 'serviceId')).toBe('serviceId');
});

test('variablesOf prefers an image to text and omits empty fields', async () => {
  const upload: Upload = { name: 'receipt.png', kind: 'image', assetId: '' };
  const values = { letter: { ...emptyValue(), text: 'me' }, receipt: { text: 'old', upload }, notes: emptyValue() };
  expect(await variablesOf(fieldsOf(claim), values, async () => 'a_1')).toEqual({ letter: 'me', receiptPhoto: { assetId: 'a_1' } });
});

test('a document is uploaded in place of the text of a field that takes uploads', async () => {
  const [letter, receipt, notes] = fieldsOf(claim);
  expect(accepted(letter)).toBe('.txt,.md,.text,text/*,.pdf,.docx,.odt,.html,.htm,.xml,.eml');
  expect(accepted(receipt)).toBe('.txt,.md,.text,text/*,.pdf,.docx,.odt,.html,.htm,.xml,.eml,image/png,image/jpeg,image/webp');
  expect(accepted(notes)).toBe('.txt,.md,.text,text/*');
  const document: Upload = { name: 'cv.PDF', kind: 'document', assetId: '' };
  const value = { text: 'old', upload: document };
  expect(isFilled({ text: '', upload: document })).toBe(true);
  expect([letter, receipt, notes].map((f) => [takes(f, 'document'), takes(f, 'image')])).toEqual([[true, false], [true, true], [false, false]]);
  const uploads: string[] = [];
  const upload = async (u: Upload, key: string) => `a_${uploads.push(`${key} ${u.name}`)}`;
  expect(await variablesOf([letter, notes], { letter: value, notes: value }, upload)).toEqual({ letter: { assetId: 'a_1' }, notes: 'old' });
  expect(uploads).toEqual(['letter cv.PDF']);
  const stored = { text: '', upload: { ...document, assetId: 'a_9' } };
  expect(await variablesOf([letter], { letter: stored }, upload)).toEqual({ letter: { assetId: 'a_9' } });
  expect(uploads, 'a stored file is not uploaded again').toHaveLength(1);
});

test('a file is what its content is, whatever its name', async () => {
  const file = (content: BlobPart, name: string) => new File([content], name);
  const png = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0]);
  const webp = new TextEncoder().encode('RIFF\n\n\n\nWEBPVP8 ');
  const kinds = async (...files: File[]) => Promise.all(files.map(async (f) => (await inspect(f)).kind));
  expect(await kinds(file(png, 'r.pdf'), file(new Uint8Array([0xff, 0xd8, 0xff, 0xe0]), 'r.txt'), file(webp, 'x'))).toEqual(['image', 'image', 'image']);
  expect(await kinds(file('%PDF-1.7', 'r.png'), file('PK\x03\x04', 'r.txt'))).toEqual(['document', 'document']);
  expect(await kinds(file('', 'r.pdf'), file('GIF89a\0', 'r.png'), file(new Uint8Array([0xc4, 0xe3]), 'gbk.txt'))).toEqual(['empty', 'document', 'document']);
  expect(await inspect(file('\ufeffRésumé', 'r.pdf'))).toEqual({ kind: 'text', text: 'Résumé' });
  expect(await kinds(file('junk\n%PDF-1.4', 'a'), file(' <p>Hi', 'a'), file('{\\rtf1', 'a'), file('From: a\nMIME-Version: 1.0\n', 'a'))).toEqual(Array(4).fill('document'));
  expect(await kinds(file('\0\x01\0\0', 'a'), file('a\0b c', 'a'), file('G\0o\0', 'a'), file(new Uint8Array([0xd0, 0xcf, 0x11, 0xe0, 0, 0]), 'a'))).toEqual(['unknown', 'document', 'document', 'document']);
  expect(await kinds(file('GIF89a is', 'a'), file('%PDF-word', 'a'), file('Note: a\nb < c', 'a'), file('a'.repeat(4095) + 'é', 'a'))).toEqual(Array(4).fill('text'));
  expect(await kinds(file('a'.repeat(5000) + '\xe9', 'a'), file(new Uint8Array([...new Uint8Array(5000).fill(97), 0xe9]), 'a'))).toEqual(['text', 'document']);
});

test('a text file above the limit is not read', async () => {
  const at = new File(['x'.repeat(maxTextBytes)], 'a.txt');
  expect((await inspect(at)).text).toHaveLength(maxTextBytes);
  const above = new File(['x'.repeat(maxTextBytes + 1)], 'a.txt');
  above.arrayBuffer = () => { throw new Error('it was read'); };
  expect(await inspect(above)).toEqual({ kind: 'oversize', text: '' });
});

test('the size of a text is measured in bytes near the limit', () => {
  expect(measured('x'.repeat(1000))).toBe(0);
  expect(measured('简'.repeat(50_000))).toBe(0);
  expect(measured('简'.repeat(60_000))).toBe(180_000);
  expect(measured('x'.repeat(maxTextBytes + 1))).toBe(maxTextBytes + 1);
});

test('problemOf parses problem details and tolerates other bodies', () => {
  const p = problemOf(422, JSON.stringify({ title: 'x', detail: 'is missing', code: 'invalid', field: 'variables.letter' }));
  expect([p.status, p.code, p.field, p.message]).toEqual([422, 'invalid', 'variables.letter', 'is missing']);
  expect(problemOf(429, '{"retryAfter":7,"code":"rate_limited"}').retryAfter).toBe(7);
  // What a proxy in front of the server answers.
  const html = '<html><h1>Bad Gateway</h1></html>';
  for (const [status, code] of [[502, 'proxy'], [503, 'proxy'], [504, 'proxy'], [413, 'proxy_limit'], [403, 'http_403'], [500, 'http_500']] as const) {
    for (const body of [html, '', '{}', '{"code":']) {
      expect(problemOf(status, body, '3')).toMatchObject({ code, status, retryAfter: 3, message: `HTTP ${status}` });
    }
  }
  expect(problemOf(503, '{"code":"unavailable","detail":"Redis"}').code).toBe('unavailable');
});

test('newId returns random UUIDs', () => {
  expect(newId()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(newId()).not.toBe(newId());
});
