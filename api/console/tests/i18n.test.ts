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
  i18n.toggle();
  expect(i18n.place({ ...wait, paused: true })).toBe('模型已暂停，前面还有 2 个，约 12 秒');
  expect(i18n.place({ position: 0, paused: false, etaSeconds: -1 })).toBe('即将开始');
});
