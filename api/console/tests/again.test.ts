import { expect, test } from 'vitest';
import { curlOf, isGone, isWhole, jsonOf, submissionOf, valuesOf } from '../src/lib/again';
import { emptyValue, fieldsOf, variablesOf } from '../src/lib/form';
import type { TaskView, Template } from '../src/lib/openapi';
import { shell } from './shell.mjs';

const text = (name: string, more = {}) => ({ name, kind: 'document', required: false, kinds: ['text', 'text_asset'], label: {}, ...more });
const image = (name: string, more = {}) => ({ name, kind: 'image', required: false, kinds: ['image_asset'], label: {}, ...more });
const template = {
  name: 'any', mode: 'batch', credits: 1, locales: ['en'],
  variables: [text('body', { required: true }), text('paper', { group: 'g' }), image('scan', { group: 'g' }), image('photo', { group: 'g' }), text('more'), image('stamp')],
} as unknown as Template;

const input = (variable: string, kind: string, more = {}) => ({ variable, kind, assetId: `a_${variable}`, size: 5, ...more });
const taskWith = (...inputs: ReturnType<typeof input>[]) => ({
  taskId: 't', template: 'any', serviceId: "it's", locale: 'zh', title: 'T', status: 'COMPLETED', inputs,
  variables: Object.fromEntries(inputs.map((i) => [i.variable, { assetId: i.assetId, kind: i.kind }])),
}) as unknown as TaskView;
const stored = async (id: string) => `text of ${id}`;

test('a submission of a task has its input only, and no id', () => {
  const task = taskWith(input('body', 'text_asset'), input('scan', 'image_asset'));
  expect(submissionOf(task)).toEqual({ template: 'any', serviceId: "it's", locale: 'zh', variables: task.variables });
  expect(JSON.parse(jsonOf(task))).toEqual(submissionOf(task));
});

test('the command for curl is one that a shell reads, whatever the input has', () => {
  const task = taskWith(input('body', 'text_asset'));
  const words = shell(`BERTH_TOKEN=secret; ${curlOf(task, "http://h/it's/v1/tasks").replace(/^curl/, 'printf "%s\\n"')}`);
  expect(words).toContain('Authorization: Bearer secret\n');
  expect(words).toMatch(/Idempotency-Key: \S+\n/); // so that it is a new task
  expect(words).toContain("http://h/it's/v1/tasks\n");
  expect(JSON.parse(words.slice(words.indexOf('--json\n') + 7))).toEqual(submissionOf(task));
});

test('the form has every kind of input, and submits the same assets', async () => {
  for (const [inputs, want] of [
    [[input('body', 'text_asset')], { body: 'text of a_body' }],
    [[input('body', 'text_asset', { name: 'b.pdf.txt' })], { body: { assetId: 'a_body' } }],
    [[input('body', 'text_asset'), input('paper', 'text_asset'), input('more', 'text_asset', { name: 'm.txt' })], { body: 'text of a_body', paper: 'text of a_paper', more: { assetId: 'a_more' } }],
    [[input('scan', 'image_asset', { name: 's.png' }), input('stamp', 'image_asset')], { scan: { assetId: 'a_scan' }, stamp: { assetId: 'a_stamp' } }],
    [[input('photo', 'image_asset')], { scan: { assetId: 'a_photo' } }], // another one of the group takes the same
    [[input('body', 'text_asset', { erased: true }), input('more', 'text_asset')], { more: 'text of a_more' }],
    [[input('removed', 'text_asset')], {}],
  ] as const) {
    const fields = fieldsOf(template);
    const empty = Object.fromEntries(fields.map((f) => [f.key, emptyValue()]));
    const values = await valuesOf(taskWith(...inputs), template, stored);
    expect(await variablesOf(fields, { ...empty, ...values }, async () => 'none is uploaded')).toEqual(want);
  }
});

test('a task is submitted again as it is only while all of its input is kept', () => {
  const kept = input('body', 'text_asset');
  const erased = input('more', 'text_asset', { erased: true });
  expect([taskWith(kept), taskWith(kept, erased), taskWith(erased)].map((x) => [isWhole(x), isGone(x)])).toEqual([[true, false], [false, false], [false, true]]);
});
