import { afterEach, expect, test, vi } from 'vitest';
import { at, home, own, signalling } from '../src/lib/home';

const sources = import.meta.glob(['../src/**/*.{ts,svelte,css}', '../vite.config.ts'], { query: '?raw', import: 'default', eager: true }) as Record<string, string>;

afterEach(() => vi.unstubAllGlobals());

test.each([
  ['http://h/', 'http://h/', 'ws://h'],
  ['http://h:81/?code=a/b#/tasks/x', 'http://h:81/', 'ws://h:81'],
  ['https://h/berth/', 'https://h/berth/', 'wss://h/berth'],
  ['https://h/berth/index.html#/console', 'https://h/berth/', 'wss://h/berth'],
  ['https://h/a/b/?state=s&code=/c/#/join/x', 'https://h/a/b/', 'wss://h/a/b'],
])('the page at %s calls what is beside it', (address, base, ws) => {
  vi.stubGlobal('document', { baseURI: address });
  expect(home()).toBe(base);
  expect(at('/v1/tasks?limit=1')).toBe(`${base}v1/tasks?limit=1`);
  expect(at('/v1/pools/a%2Fb')).toBe(`${base}v1/pools/a%2Fb`);
  expect(at('https://other/x')).toBe('https://other/x');
  expect(signalling()).toBe(ws);
  const path = new URL(base).pathname;
  expect(own('berth.token')).toBe(path === '/' ? 'berth.token' : `berth.token ${path}`);
});

test('no part of the page has an absolute address', () => {
  expect(Object.keys(sources).length).toBeGreaterThan(50);
  for (const [file, text] of Object.entries(sources)) {
    expect(text, file).not.toMatch(/(?:href|src|action)=["'{`]*\/|url\(["']?\/|location\.(?:origin|host\b)/);
    for (const [call] of text.matchAll(/(?<![\w.])fetch\)?\([^)]*/g)) expect(call, file).toMatch(/at\(|issuer|endpoint/);
  }
  expect(sources['../vite.config.ts']).toContain("base: './'");
});
