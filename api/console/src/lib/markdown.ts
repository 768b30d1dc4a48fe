// Markdown by marked's lexer. Its tokens become a tree, never HTML: Markdown.svelte renders the tree as elements with text nodes, so
// that no model output can become markup, and there is nothing to sanitise but the addresses of links. Incomplete text is valid.
import { lexer, type Token, type Tokens } from 'marked';

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

const maxDepth = 8; // bounds the elements that hostile text creates

/** Deeper nesting than this is not Markdown that a person wrote, and would make the lexer slow. */
const nested = /^(?:\s{0,3}(?:>|[-*+](?=\s)|\d{1,9}[.)](?=\s))\s?){9,}/;
const longest = 20_000; // of a line, beyond which the lexer's patterns become slow

/** parse parses a text, complete or not. */
export function parse(text: string): Block[] {
  const lines = text.replace(/\r\n?/g, '\n').split('\n');
  if (lines.some((l) => nested.test(l) || l.length > longest)) return lines.filter((l) => l.trim()).map(plain);
  return lexer(lines.join('\n')).flatMap((token) => block(token, 0));
}

const plain = (text: string): Block => ({ kind: 'paragraph', children: [{ kind: 'text', text }] });

function block(token: Token, depth: number): Block[] {
  if (depth > maxDepth) return [plain(token.raw)];
  const inner = (tokens: Token[]) => tokens.flatMap((t) => block(t, depth + 1));
  switch (token.type) {
    case 'space':
    case 'checkbox':
      return [];
    case 'heading': {
      const t = token as Tokens.Heading;
      return [{ kind: 'heading', level: t.depth, children: inline(t.tokens) }];
    }
    case 'paragraph':
      return [{ kind: 'paragraph', children: inline((token as Tokens.Paragraph).tokens) }];
    case 'text': {
      const t = token as Tokens.Text;
      return [t.tokens ? { kind: 'paragraph', children: inline(t.tokens) } : plain(t.text)];
    }
    case 'code':
      return [{ kind: 'code', text: (token as Tokens.Code).text }];
    case 'blockquote':
      return [{ kind: 'quote', blocks: inner((token as Tokens.Blockquote).tokens) }];
    case 'list': {
      const t = token as Tokens.List;
      return [{ kind: 'list', ordered: t.ordered, start: t.start === '' ? 1 : t.start, items: t.items.map((i) => inner(i.tokens)) }];
    }
    case 'table': {
      const t = token as Tokens.Table;
      return [{ kind: 'table', head: t.header.map((c) => inline(c.tokens)), rows: t.rows.map((r) => r.map((c) => inline(c.tokens))) }];
    }
    case 'hr':
      return [{ kind: 'rule' }];
    default: // HTML and definitions are shown as they were written
      return token.raw.trim() ? [plain(token.raw.trim())] : [];
  }
}

function inline(tokens: Token[], depth = 0): Inline[] {
  const out: Inline[] = [];
  const text = (s: string) => {
    for (const piece of s.split(/([✅❌]\uFE0F?)/u)) {
      const last = out.at(-1);
      if (/^[✅❌]/u.test(piece)) out.push({ kind: 'mark', text: piece[0], yes: piece[0] === '✅' });
      else if (last?.kind === 'text') last.text += piece;
      else if (piece) out.push({ kind: 'text', text: piece });
    }
  };
  for (const token of tokens) {
    const children = () => inline(('tokens' in token && token.tokens) || [], depth + 1);
    if (depth > maxDepth) text(token.raw);
    else if (token.type === 'text' && 'tokens' in token && token.tokens?.length) out.push(...children());
    else if (token.type === 'text' || token.type === 'escape') text((token as Tokens.Text).text);
    else if (token.type === 'codespan') out.push({ kind: 'code', text: (token as Tokens.Codespan).text });
    else if (token.type === 'strong' || token.type === 'em') out.push({ kind: token.type, children: children() });
    else if (token.type === 'br') out.push({ kind: 'break' });
    else if (token.type === 'image') text((token as Tokens.Image).text); // images from other servers are not loaded
    else if (token.type === 'link' && /^(https?:\/\/|mailto:)/i.test((token as Tokens.Link).href)) {
      out.push({ kind: 'link', href: (token as Tokens.Link).href, children: children() });
    } else text(token.raw);
  }
  return out;
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
