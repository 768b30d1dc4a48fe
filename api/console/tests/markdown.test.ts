import { render } from 'svelte/server';
import { expect, test } from 'vitest';
import { closeOpen, parse } from '../src/lib/markdown';
import Markdown from '../src/parts/Markdown.svelte';

/** The elements and attributes of what the page shows for a text, without Svelte's own marks. */
const html = (text: string) => render(Markdown, { props: { text } }).body.replace(/<!--.*?-->/g, '').replace(/\s+/g, ' ').trim();
const tags = (text: string) => [...html(text).matchAll(/<([a-z0-9]+)/g)].map((m) => m[1]);

test('common Markdown becomes elements', () => {
  const out = html('## Strong match\n\n**Go** and `etcd`, *mostly*.\n\n1. one\n2. two\n   - inner\n\n> quoted\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode <b>\n```');
  for (const piece of ['<strong>Go</strong>', '<code>etcd</code>', '<em>mostly</em>', '<ol', '<ul', '<blockquote dir="auto">', '<th>a', '<td>2', 'code &lt;b>']) {
    expect(out).toContain(piece);
  }
});

// The direction of a block is that of its letters: those of an element with a direction of its own do not count.
test('each block of a text has one direction, and what is in it has none', () => {
  expect(html('- مرحبا\n  - عالم\n\n> نص')).toBe('<div class="prose"><ul dir="auto"><li><p>مرحبا</p><ul><li><p>عالم</p></li></ul></li></ul><blockquote dir="auto"><p>نص</p></blockquote></div>');
  const rtl = render(Markdown, { props: { text: 'API هو', dir: 'rtl' } }).body;
  expect(rtl).toContain('<p dir="rtl">');
});

test('hostile text stays text', () => {
  const hostile = [
    '<script>alert(1)</script>',
    '<img src=x onerror=alert(1)>',
    '**<svg onload=alert(1)>**',
    '`<iframe src=javascript:alert(1)>`',
    '# <style>*{display:none}</style>',
    '- <a href="javascript:alert(1)">x</a>',
    '| <script>1</script> | b |\n|---|---|\n| <b onclick=x> | 2 |',
    '[x](javascript:alert(1))', '[x](data:text/html,<script>1</script>)', '[x]( javascript:alert(1))', '[x](JaVaScRiPt:alert(1))',
    '![x](https://example.com/track.png)',
    '[x](https://example.com/"onmouseover="alert(1))',
    '&lt;script&gt;', '\u001b[31mred\u001b[0m', 'a\n\nevent: done\ndata: {}\n\n',
  ];
  for (const text of hostile) {
    const allowed = ['div', 'p', 'h2', 'h3', 'h4', 'strong', 'em', 'code', 'pre', 'ul', 'ol', 'li', 'a', 'table', 'thead', 'tbody', 'tr', 'th', 'td'];
    for (const tag of tags(text)) expect(allowed, text).toContain(tag);
    expect(html(text), text).not.toMatch(/<[^>]*\son\w+\s*=\s*[^"]/);
    expect(html(text), text).not.toMatch(/<[^>]*\shref="(?!https?:|mailto:)/i);
  }
  expect(html('[x](https://example.com/"onmouseover="alert)')).toContain('&quot;onmouseover=&quot;');
});

test('incomplete text is parsed at every length', () => {
  const text = '## Title\n\nSome **bold** and [link](https://example.com/a) with `code`.\n\n- a\n- b\n\n```\nx\n```\n| a |\n|---|\n| 1 |';
  for (let i = 0; i <= text.length; i++) expect(() => parse(text.slice(0, i))).not.toThrow();
});

test('open marks in the last line of incomplete text are closed', () => {
  for (const [open, closed] of [
    ['a **bo', 'a **bo**'], ['a **bold**', 'a **bold**'], ['a **bold*', 'a **bold**'], ['a **', 'a '], ['**a** and *b', '**a** and *b*'],
    ['_Written by', '_Written by_'], ['snake_case', 'snake_case'], ['use `co', 'use `co`'], ['* item', '* item'], ['- **x', '- **x**'],
    ['**a\nplain', '**a\nplain'], ['```\na **b', '```\na **b'], ['2 * 3 = 6', '2 * 3 = 6'], ['', ''],
  ]) expect(closeOpen(open), open).toBe(closed);
});

interface Used { user: number; system: number } // µs
declare const process: { cpuUsage(before?: Used): Used };

test('long hostile text is parsed quickly', () => {
  const before = process.cpuUsage(); // other programs may have the processor meanwhile
  for (const unit of ['*', '**a', '_', '`', '[', '[a](', '> ', '- ', '  - ', '|', '\\', '<']) parse(unit.repeat(20_000));
  for (const unit of ['> ', '- ']) parse(Array.from({ length: 400 }, (_, i) => unit.repeat(i % 200) + 'x').join('\n'));
  const used = process.cpuUsage(before);
  expect((used.user + used.system) / 1000).toBeLessThan(4000);
});
