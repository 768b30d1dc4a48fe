import { beforeAll, expect, test, vi } from 'vitest';

beforeAll(() => {
  vi.stubGlobal('localStorage', { getItem: () => 'en', setItem: () => {} });
  vi.stubGlobal('document', { documentElement: {} });
});

test('the place of a call that waits, in both languages', async () => {
  const { i18n } = await import('../src/lib/i18n.svelte');
  const wait = { position: 2, paused: false, etaSeconds: 12 };
  expect(i18n.place(wait)).toBe('2 ahead, about 12 s');
  expect(i18n.place({ ...wait, paused: true, etaSeconds: -1 })).toBe('The model is paused, 2 ahead');
  expect(i18n.place({ position: 0, paused: true, etaSeconds: -1 })).toBe('The model is paused');
  expect(i18n.place({ position: -1, paused: false, etaSeconds: -1 })).toBe('In the queue');
  expect([0, -1, 3].map((position) => i18n.position({ position, paused: true }))).toEqual(['', '', '3 ahead']);
  expect(i18n.position({ position: 0, paused: false })).toBe('Next in the queue');
  i18n.toggle();
  expect(i18n.place({ ...wait, paused: true })).toBe('模型已暂停，前面还有 2 个，约 12 秒');
  expect(i18n.place({ position: 0, paused: false, etaSeconds: -1 })).toBe('即将开始');
  i18n.lang = 'en';
});

test('an estimate has whole seconds or minutes, a measured duration tenths of a second', async () => {
  const { i18n } = await import('../src/lib/i18n.svelte');
  expect([0.2, 7, 59.4, 60, 100, 3600].map((s) => i18n.estimate(s))).toEqual(['1 s', '7 s', '59 s', '1 min', '2 min', '60 min']);
  expect([200, 7000, 61_500].map((ms) => i18n.duration(ms))).toEqual(['0.2 s', '7.0 s', '1 min 01 s']);
  i18n.lang = 'zh';
  expect([7, 100].map((s) => i18n.estimate(s))).toEqual(['7 秒', '2 分钟']);
  i18n.lang = 'en';
});

test('what is announced has the punctuation of the language', async () => {
  const { i18n } = await import('../src/lib/i18n.svelte');
  expect(i18n.sentences('Model paused', 'Summarise', '')).toBe('Model paused. Summarise');
  i18n.lang = 'zh';
  expect(i18n.sentences('模型已暂停', '概括', '')).toBe('模型已暂停。概括');
  i18n.lang = 'en';
});

test('a refused input is explained in both languages, with its size and the limit in one unit', async () => {
  const { i18n } = await import('../src/lib/i18n.svelte');
  const { refusalOf } = await import('../src/lib/explain');
  const kinds = ['oversize', 'empty', 'unknown', 'textOnly'] as const;
  const texts = () => kinds.map((kind) => refusalOf({ kind, size: 2_000_000 }, i18n));
  const english = texts();
  expect(english[0]).toBe('The text is too long: it has 2,000,000 bytes, and the limit is 200,000 bytes.');
  i18n.lang = 'zh';
  expect(texts()[0]).toBe('文字过长：大小为 2,000,000 字节，上限为 200,000 字节。');
  expect(new Set([...english, ...texts()]).size).toBe(2 * kinds.length);
  i18n.lang = 'en';
});

test('a failed call is explained in both languages, with the numbers of the API', async () => {
  const { i18n } = await import('../src/lib/i18n.svelte');
  const { explain } = await import('../src/lib/explain');
  const { Problem } = await import('../src/lib/api');
  const cases: [code: string, message: string, en: string, zh: string][] = [
    ['unsupported_media', 'the file is protected by a password: remove the protection', 'The file is protected by a password.', '文件有密码保护'],
    ['unsupported_media', 'the file contains no text: upload scanned pages as images', 'The file contains no text.', '文件中没有文字'],
    ['unsupported_media', 'the file is damaged or incomplete', 'The file is damaged or incomplete.', '文件已损坏或不完整'],
    ['unsupported_media', 'the file is a HEIC image, which is not supported: save it as JPEG or PNG', 'not supported (HEIC image). Save it as JPEG', '（HEIC image），请另存为 JPEG'],
    ['unsupported_media', 'the file is a Word 97-2003 document, which is not supported: save it as DOCX or PDF', '(Word 97-2003 document). Save it as DOCX', '请另存为 DOCX'],
    ['unsupported_media', 'the file is a RAR archive, which is not supported: unpack it and upload the files in it', 'Unpack it', '请解压'],
    ['unsupported_media', 'the file is MP3 audio, which is not supported: upload its content as text', '(MP3 audio). Paste its content', '（MP3 audio），请粘贴'],
    ['unsupported_media', 'the encoding of the text is not certain, perhaps Big5 or EUC-JP: save it as UTF-8', 'The text is not in UTF-8.', '文字不是 UTF-8 编码'],
    ['too_large', 'the image is 24000 pixels high; at most 20000 are read: scale it down, or upload a part of it', 'The image is 24,000 pixels high. At most 20,000 are read.', '图片高 24,000 像素'],
    ['unsupported_media', 'the PNG image is damaged, its part IDAT has a wrong checksum: save it or copy it again', 'The image is damaged or incomplete.', '图片已损坏或不完整'],
    ['unsupported_media', 'some other reason', 'This file type is not supported. (some other reason)', '不支持这种文件类型。 (some other reason)'],
    ['too_large', 'exceeds the limit of 10 MiB', 'This is too large: the limit is 10 MB.', '内容过大，上限为 10 MB。'],
    ['too_large', 'exceeds the limit of 4 MiB', 'This is too large: the limit is 4 MB.', '内容过大，上限为 4 MB。'],
    ['too_large', 'exceeds the limit of 200,000 bytes', 'This is too large: the limit is 200,000 bytes.', '内容过大，上限为 200,000 字节。'],
    ['too_large', 'the text of the file exceeds the limit of 200,000 bytes', 'The text is too long: the limit is 200,000 bytes.', '文字过长，上限为 200,000 字节。'],
    ['too_large', 'too long for the model m: the texts of step match have about 90000 tokens, 80000 of them here, and at most 60000 fit; shorten it',
      'The text is too long for the model: about 90,000 tokens, and at most 60,000 fit.', '约 90,000 个 Token，最多 60,000 个'],
    ['conflict', 'task already finished (status COMPLETED)', 'This task has already ended.', '任务已经结束。'],
    ['conflict', 'template triage is already deleted, by olga; activate a version to restore it', 'The template triage is already deleted, by olga.', '模板 triage 已由 olga 删除。'],
    ['conflict', 'the number is in use', 'The number is in use', '服务器未接受：the number is in use'],
    ['invalid', 'no such thing', 'No such thing', '服务器未接受：no such thing'],
  ];
  for (const [code, message, ...want] of cases) {
    for (const [i, lang] of (['en', 'zh'] as const).entries()) {
      i18n.lang = lang;
      expect(explain(new Problem(400, code, '', message), i18n), message).toContain(want[i]);
    }
  }
  i18n.lang = 'en';
  expect(explain(new Problem(429, 'rate_limited', '', 'x', 43), i18n)).toBe('Too many requests. Try again in 43 s.');
  expect(i18n.size(2 << 20)).toBe('2 MB');
});

// FM4
test('a failed task is explained in both languages, with what its user or operator can do', async () => {
  const { i18n } = await import('../src/lib/i18n.svelte');
  const { failureOf } = await import('../src/lib/explain');
  const cases: [code: string, message: string, en: string, zh: string][] = [
    ['provider_rejected', 'the texts are too long for the model: shorten them', 'too long for the model. Shorten', '请缩短'],
    ['provider_rejected', 'the content filter of acme refused the texts or the answer: change the texts', 'Change the texts', '内容审核'],
    ['provider_rejected', 'the account of this server at acme has no credit: the operator has to add some', 'no credit', '充值'],
    ['provider_unavailable', 'acme is overloaded: retry later; this lasted until the deadline', 'overloaded', '负载过高'],
    ['provider_rejected', 'acme rejected the request (status 400: no): the operator has to check it', '(acme rejected the request (status 400: no)', '(acme rejected'],
    ['provider_key', 'acme rejected the API key', "rejected this server's API key", '密钥'],
    ['new_code', 'some reason', 'some reason', 'some reason'],
  ];
  for (const [code, message, ...want] of cases) {
    for (const [i, lang] of (['en', 'zh'] as const).entries()) {
      i18n.lang = lang;
      expect(failureOf({ code, message }, i18n), message).toContain(want[i]);
      expect(failureOf({ code, message }, i18n, true), message).toBe(i18n.t.madeAgain);
    }
  }
  i18n.lang = 'en';
});

test('a time is shown with its distance, and with date and zone', async () => {
  const { i18n } = await import('../src/lib/i18n.svelte');
  const before = (seconds: number) => i18n.relative(Date.now() - seconds * 1000 - 10);
  expect([0, 59, 61, 7199, 86_401, 86_400 * 45, 86_400 * 800].map(before))
    .toEqual(['now', '59 seconds ago', '1 minute ago', '1 hour ago', 'yesterday', 'last month', '2 years ago']);
  const at = Date.UTC(2026, 0, 31, 8, 5, 9);
  expect(i18n.exact(at)).toMatch(/2026.*:05:09.*(UTC|GMT)/);
  i18n.lang = 'zh';
  expect(before(86_400 * 3)).toBe('3天前');
  expect(i18n.exact(at)).toMatch(/2026年1月31日.*:05:09/);
  expect(i18n.exact(0)).toBe('');
  i18n.lang = 'en';
});
