// A small Markdown parser. It returns a tree, never HTML: Markdown.svelte renders the tree as elements with text nodes,
// so that no model output can become markup. It also parses incomplete text.

export type Inline =
  | { kind: 'text' | 'code'; text: string }
  | { kind: 'strong' | 'em'; children: Inline[] }
  | { kind: 'link'; href: string; children: Inline[] }
  | { kind: 'mark'; text: string; yes: boolean }
  | { kind: 'break' };

export type Block =
  | { kind: 'heading'; level: number; children: Inline[] }
  | { kind: 'paragraph'; children: Inline[] }
  | { kind: 'code'; text: string }
  | { kind: 'quote'; blocks: Block[] }
  | { kind: 'list'; ordered: boolean; start: number; items: Block[][] }
  | { kind: 'table'; head: Inline[][]; rows: Inline[][][] }
  | { kind: 'rule' };

const maxDepth = 8; // bounds the recursion for hostile text

const fence = /^\s{0,3}(`{3,}|~{3,})/;
const heading = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const rule = /^\s{0,3}([-*_])(?:\s*\1){2,}\s*$/;
const quote = /^\s{0,3}>\s?(.*)$/;
const item = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*)|\s*)$/;
const delimiter = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** parse parses a text, complete or not. */
export function parse(text: string): Block[] {
  return blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
}

/**
 * closeOpen closes the marks that are still open in the last line of an incomplete text, so that a bold word is bold
 * from its first letter and no marks flicker.
 */
export function closeOpen(text: string): string {
  const at = text.lastIndexOf('\n') + 1;
  if ((text.match(/^\s{0,3}(`{3,}|~{3,})/gm) ?? []).length % 2 === 1) return text;
  const line = text.slice(at).replace(/(?<=\S|^|\s)[*_`]+$/, '');
  const code = line.split('`');
  if (code.length % 2 === 0) return text.slice(0, at) + line.trimEnd() + '`';
  const plain = code.filter((_, i) => i % 2 === 0).join(' ').replace(/^\s*[*+-]\s/, '');
  let close = '';
  const single = plain.replaceAll('**', '');
  if ((single.match(/\*(?=\S)/g) ?? []).length > (single.match(/(?<=\S)\*/g) ?? []).length) close += '*';
  if ((single.match(/(?<!\w)_(?=\S)/g) ?? []).length > (single.match(/(?<=\S)_(?!\w)/g) ?? []).length) close += '_';
  if (plain.split('**').length % 2 === 0) close += '**';
  return text.slice(0, at) + (close ? line.trimEnd() + close : line);
}

function blocks(lines: string[], depth: number): Block[] {
  const out: Block[] = [];
  let i = 0;
  while (i < lines.length) {
    const line = lines[i];
    if (line.trim() === '') {
      i++;
      continue;
    }
    const f = fence.exec(line);
    if (f) {
      const body: string[] = [];
      for (i++; i < lines.length && !lines[i].trim().startsWith(f[1]); i++) body.push(lines[i]);
      i++;
      out.push({ kind: 'code', text: body.join('\n') });
      continue;
    }
    const h = heading.exec(line);
    if (h) {
      out.push({ kind: 'heading', level: h[1].length, children: inline(h[2]) });
      i++;
      continue;
    }
    if (rule.test(line)) {
      out.push({ kind: 'rule' });
      i++;
      continue;
    }
    if (quote.test(line) && depth < maxDepth) {
      const body: string[] = [];
      for (; i < lines.length && quote.test(lines[i]); i++) body.push(quote.exec(lines[i])![1]);
      out.push({ kind: 'quote', blocks: blocks(body, depth + 1) });
      continue;
    }
    if (item.test(line) && depth < maxDepth) {
      const [list, next] = readList(lines, i, depth);
      out.push(list);
      i = next;
      continue;
    }
    if (line.includes('|') && i + 1 < lines.length && lines[i + 1].includes('-') && delimiter.test(lines[i + 1])) {
      const head = cells(line);
      const rows: Inline[][][] = [];
      for (i += 2; i < lines.length && lines[i].includes('|'); i++) rows.push(cells(lines[i]));
      out.push({ kind: 'table', head, rows });
      continue;
    }
    const body = [line];
    for (i++; i < lines.length && !startsBlock(lines[i], depth); i++) body.push(lines[i]);
    out.push({ kind: 'paragraph', children: paragraph(body) });
  }
  return out;
}

function startsBlock(line: string, depth: number): boolean {
  if (line.trim() === '' || fence.test(line) || heading.test(line) || rule.test(line)) return true;
  return depth < maxDepth && (quote.test(line) || item.test(line));
}

function readList(lines: string[], from: number, depth: number): [Block, number] {
  const first = item.exec(lines[from])!;
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items: string[][] = [];
  let i = from;
  while (i < lines.length) {
    const m = item.exec(lines[i]);
    if (m && m[1].length <= indent + 1 && !rule.test(lines[i])) {
      if (m[1].length < indent || /\d/.test(m[2]) !== ordered) break;
      items.push([m[3] ?? '']);
      i++;
      continue;
    }
    if (lines[i].trim() === '') {
      // A blank line ends the list unless the list continues after it.
      let k = i;
      while (k < lines.length && lines[k].trim() === '') k++;
      const more = k < lines.length ? item.exec(lines[k]) : null;
      const inside = k < lines.length && /^\s{2,}/.test(lines[k]) && leading(lines[k]) > indent;
      if (!inside && !(more && more[1].length === indent && /\d/.test(more[2]) === ordered)) break;
      items.at(-1)!.push('');
      i++;
      continue;
    }
    if (leading(lines[i]) > indent || !startsBlock(lines[i], depth)) {
      items.at(-1)!.push(lines[i].slice(Math.min(leading(lines[i]), indent + 2)));
      i++;
      continue;
    }
    break;
  }
  const start = ordered ? Number.parseInt(first[2], 10) : 1;
  return [{ kind: 'list', ordered, start, items: items.map((body) => blocks(body, depth + 1)) }, i];
}

const leading = (line: string) => line.length - line.trimStart().length;

function cells(line: string): Inline[][] {
  return line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => inline(cell.trim()));
}

function paragraph(lines: string[]): Inline[] {
  const out: Inline[] = [];
  lines.forEach((line, i) => {
    if (i > 0) out.push(/ {2,}$|\\$/.test(lines[i - 1]) ? { kind: 'break' } : { kind: 'text', text: '\n' });
    out.push(...inline(line.trim().replace(/\\$/, '')));
  });
  return out;
}

// One alternative per kind. Each matches in linear time: no repeated group can match the same text in two ways.
const pieces =
  /\\([\\`*_{}[\]()#+\-.!|>~<])|(`+)([^`]+?)\2(?!`)|\*\*(?=\S)([^*]+?)\*\*|__(?=\S)([^_]+?)__(?!\w)|\*(?=\S)([^*\n]+?)\*|(?<!\w)_(?=\S)([^_\n]+?)_(?!\w)|!?\[([^\][]{0,300})\]\(([^()\s]{0,2000})\)|([✅❌])\uFE0F?/g;

/** inline parses the marks within one line; anything else stays text. */
export function inline(text: string, depth = 0): Inline[] {
  if (depth > maxDepth) return [{ kind: 'text', text }];
  const out: Inline[] = [];
  let end = 0;
  const plain = (s: string) => {
    const last = out.at(-1);
    if (s === '') return;
    if (last?.kind === 'text') last.text += s;
    else out.push({ kind: 'text', text: s });
  };
  for (const m of text.matchAll(pieces)) {
    plain(text.slice(end, m.index));
    end = m.index + m[0].length;
    const strong = m[4] ?? m[5];
    const em = m[6] ?? m[7];
    if (m[1] !== undefined) plain(m[1]);
    else if (m[10] !== undefined) out.push({ kind: 'mark', text: m[10], yes: m[10] === '✅' });
    else if (m[3] !== undefined) out.push({ kind: 'code', text: m[3] });
    else if (strong !== undefined) out.push({ kind: 'strong', children: inline(strong, depth + 1) });
    else if (em !== undefined) out.push({ kind: 'em', children: inline(em, depth + 1) });
    else if (m[0].startsWith('!')) plain(m[8]); // images from other servers are not loaded
    else if (/^(https?:\/\/|mailto:)/i.test(m[9])) out.push({ kind: 'link', href: m[9], children: inline(m[8], depth + 1) });
    else plain(m[0]);
  }
  plain(text.slice(end));
  return out;
}
