import { expect, test } from 'vitest';
import { newId, problemOf, type Template } from '../src/lib/api';
import { accepted, emptyValue, fieldAt, fieldsOf, isDocument, isFilled, variablesOf } from '../src/lib/form';

const match: Template = {
  name: 'job_match', mode: 'stream', credits: 3,
  variables: [
    { name: 'resume', required: true, group: '', kinds: ['text', 'text_asset'] },
    { name: 'jobText', required: false, group: 'job', kinds: ['text', 'text_asset'] },
    { name: 'jobImage', required: false, group: 'job', kinds: ['image_asset'] },
    { name: 'image', required: false, group: 'job', kinds: ['image_asset'] },
    { name: 'notes', required: false, group: '', kinds: ['text'] },
  ],
};

test('a group of variables is one field that takes text or an image', () => {
  expect(fieldsOf(match)).toEqual([
    { key: 'resume', text: 'resume', image: '', documents: true, required: true },
    { key: 'jobText', text: 'jobText', image: 'jobImage', documents: true, required: true },
    { key: 'notes', text: 'notes', image: '', documents: false, required: false },
  ]);
});

test('fieldAt maps a problem path to its field', () => {
  expect(fieldAt(match, 'variables.image')).toBe('jobText');
  expect(fieldAt(match, 'variables.resume.assetId')).toBe('resume');
  expect(fieldAt(match, 'serviceId')).toBe('serviceId');
});

test('variablesOf prefers an image to text and omits empty fields', async () => {
  const image = new File(['x'], 'posting.png', { type: 'image/png' });
  const values = { resume: { ...emptyValue(), text: 'me' }, jobText: { ...emptyValue(), text: 'old', image }, notes: emptyValue() };
  expect(await variablesOf(fieldsOf(match), values, async () => 'a_1')).toEqual({ resume: 'me', jobImage: { assetId: 'a_1' } });
});

test('a document is uploaded in place of the text of a field that takes uploads', async () => {
  const [resume, job, notes] = fieldsOf(match);
  expect(accepted(resume)).toBe('.txt,.md,.text,text/*,.pdf,.docx');
  expect(accepted(job)).toBe('.txt,.md,.text,text/*,.pdf,.docx,image/png,image/jpeg,image/webp');
  expect(accepted(notes)).toBe('.txt,.md,.text,text/*');
  const document = new File(['%PDF-1.7'], 'cv.PDF');
  expect([document, new File([''], 'cv.docx'), new File([''], 'x', { type: 'application/pdf' }), new File([''], 'cv.txt')].map(isDocument))
    .toEqual([true, true, true, false]);
  const value = { ...emptyValue(), text: 'old', document };
  expect(isFilled({ ...emptyValue(), document })).toBe(true);
  const uploads: string[] = [];
  const upload = async (f: File, key: string) => `a_${uploads.push(`${key} ${f.name}`)}`;
  expect(await variablesOf([resume, notes], { resume: value, notes: value }, upload)).toEqual({ resume: { assetId: 'a_1' }, notes: 'old' });
  expect(uploads).toEqual(['resume cv.PDF']);
});

test('problemOf parses problem details and tolerates other bodies', () => {
  const p = problemOf(422, JSON.stringify({ title: 'x', detail: 'is missing', code: 'invalid', field: 'variables.resume' }));
  expect([p.status, p.code, p.field, p.message]).toEqual([422, 'invalid', 'variables.resume', 'is missing']);
  expect(problemOf(429, '{"retryAfter":7,"code":"rate_limited"}').retryAfter).toBe(7);
  expect(problemOf(502, '<html>', '3')).toMatchObject({ code: 'http_502', retryAfter: 3, message: 'HTTP 502' });
});

test('newId returns random UUIDs', () => {
  expect(newId()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(newId()).not.toBe(newId());
});
