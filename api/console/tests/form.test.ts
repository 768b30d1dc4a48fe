import { expect, test } from 'vitest';
import { newId, problemOf } from '../src/lib/api';
import type { TemplateView } from '../src/lib/openapi';
import { accepted, emptyValue, fieldAt, fieldsOf, inspect, isFilled, maxTextBytes, measured, takes, variablesOf, type Upload } from '../src/lib/form';

const match: TemplateView = {
  template: 'job_match', locales: ['en', 'zh'], mode: 'stream', credits: 3,
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
  const upload: Upload = { name: 'posting.png', kind: 'image', assetId: '' };
  const values = { resume: { ...emptyValue(), text: 'me' }, jobText: { text: 'old', upload }, notes: emptyValue() };
  expect(await variablesOf(fieldsOf(match), values, async () => 'a_1')).toEqual({ resume: 'me', jobImage: { assetId: 'a_1' } });
});

test('a document is uploaded in place of the text of a field that takes uploads', async () => {
  const [resume, job, notes] = fieldsOf(match);
  expect(accepted(resume)).toBe('.txt,.md,.text,text/*,.pdf,.docx,.odt,.html,.htm,.xml,.eml');
  expect(accepted(job)).toBe('.txt,.md,.text,text/*,.pdf,.docx,.odt,.html,.htm,.xml,.eml,image/png,image/jpeg,image/webp');
  expect(accepted(notes)).toBe('.txt,.md,.text,text/*');
  const document: Upload = { name: 'cv.PDF', kind: 'document', assetId: '' };
  const value = { text: 'old', upload: document };
  expect(isFilled({ text: '', upload: document })).toBe(true);
  expect([resume, job, notes].map((f) => [takes(f, 'document'), takes(f, 'image')])).toEqual([[true, false], [true, true], [false, false]]);
  const uploads: string[] = [];
  const upload = async (u: Upload, key: string) => `a_${uploads.push(`${key} ${u.name}`)}`;
  expect(await variablesOf([resume, notes], { resume: value, notes: value }, upload)).toEqual({ resume: { assetId: 'a_1' }, notes: 'old' });
  expect(uploads).toEqual(['resume cv.PDF']);
  const stored = { text: '', upload: { ...document, assetId: 'a_9' } };
  expect(await variablesOf([resume], { resume: stored }, upload)).toEqual({ resume: { assetId: 'a_9' } });
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
  const p = problemOf(422, JSON.stringify({ title: 'x', detail: 'is missing', code: 'invalid', field: 'variables.resume' }));
  expect([p.status, p.code, p.field, p.message]).toEqual([422, 'invalid', 'variables.resume', 'is missing']);
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
