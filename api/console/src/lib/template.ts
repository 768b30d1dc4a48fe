// What the page takes from a template: its texts, in the language of the page where there are any, and the words of its schemas.
import type { Item, Template, TemplateVariable } from './openapi';

/** A text by its languages. */
export type Labels = Record<string, string>;
/** A text and the language in which it is. */
export interface Said { text: string; lang: string }

const own = <T>(of: Record<string, T>, key: string): T | undefined => (Object.hasOwn(of, key) ? of[key] : undefined);

/** localeOf returns a language with the script that it is usually written in. */
function localeOf(tag: string): { language: string; script: string } {
  try {
    const l = new Intl.Locale(tag).maximize();
    return { language: l.language, script: l.script ?? '' };
  } catch {
    return { language: tag.toLowerCase(), script: '' };
  }
}

/** bestOf returns which of some languages is the nearest to a wanted one: itself, in the same script, or in any; undefined if there is none. */
export function bestOf(wanted: string, tags: readonly string[]): string | undefined {
  const want = localeOf(wanted);
  const same = tags.filter((tag) => localeOf(tag).language === want.language);
  return tags.find((tag) => tag === wanted) ?? same.find((tag) => localeOf(tag).script === want.script) ?? same[0];
}

/** said returns a text in the language of the page, else in the first of the template's languages that it has, else in any. */
export function said(labels: Labels | undefined, page: string, locales?: readonly string[]): Said {
  const tags = Object.keys(labels ?? {});
  const lang = [page, ...(locales ?? [])].map((l) => bestOf(l, tags)).find(Boolean) ?? tags[0];
  return lang === undefined ? { text: '', lang: '' } : { text: labels![lang], lang };
}

/** htmlLang returns a language as an attribute: fonts differ by the script of Chinese. */
export function htmlLang(tag: string): string {
  const { language, script } = localeOf(tag);
  return language === 'zh' ? `zh-${script}` : tag;
}

/** isRtl reports whether a language is written from right to left. */
export const isRtl = (tag: string) => /^(Arab|Hebr|Syrc|Thaa|Nkoo|Adlm|Rohg|Mand|Samr)$/.test(localeOf(tag).script);

/** nameOf returns the name of a language in that language. */
export function nameOf(tag: string): string {
  try {
    const name = new Intl.DisplayNames([tag], { type: 'language' }).of(tag) ?? tag;
    return name.charAt(0).toLocaleUpperCase(tag) + name.slice(1);
  } catch {
    return tag;
  }
}

export const variableOf = (t: Template | undefined, name: string): TemplateVariable | undefined => t?.variables.find((v) => v.name === name);

// ---- JSON Schema ----------------------------------------------------------------------------------------------

/** A JSON Schema that belongs to a value, with the whole that its references mean. */
export interface Shape { root: unknown; at: unknown }

type Doc = Record<string, unknown>;
const isDoc = (v: unknown): v is Doc => v !== null && typeof v === 'object' && !Array.isArray(v);
const list = (v: unknown): unknown[] => (Array.isArray(v) ? v : []);

export const shapeOf = (schema: unknown): Shape => ({ root: schema, at: schema });

/** The schemas that apply to a value together, or one of which applies. Their number is bounded: a schema is a file of another author. */
function parts({ root, at }: Shape): Doc[] {
  const out: Doc[] = [];
  const queue = [at];
  for (let i = 0; i < queue.length && i < 100; i++) {
    const one = queue[i];
    if (!isDoc(one) || out.includes(one)) continue;
    out.push(one);
    if (typeof one.$ref === 'string') queue.push(pointed(root, one.$ref));
    queue.push(...list(one.allOf), ...list(one.anyOf), ...list(one.oneOf), one.then, one.else);
  }
  return out;
}

/** pointed returns what a reference within a schema means; undefined for one to another file. */
function pointed(root: unknown, ref: string): unknown {
  if (ref !== '#' && !ref.startsWith('#/')) return undefined;
  return ref.split('/').slice(1).reduce<unknown>((at, step) => {
    const key = decode(step).replaceAll('~1', '/').replaceAll('~0', '~');
    return Array.isArray(at) ? at[Number(key)] : isDoc(at) ? own(at, key) : undefined;
  }, root);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** first returns what the first of the schemas that has something has. */
function first<T>(shape: Shape, of: (s: Doc) => T | undefined): T | undefined {
  for (const s of parts(shape)) {
    const found = of(s);
    if (found !== undefined) return found;
  }
  return undefined;
}

export function propertyOf(shape: Shape, key: string): Shape {
  const at = first(shape, (s) => (isDoc(s.properties) ? own(s.properties, key) : undefined)) ?? first(shape, (s) => (isDoc(s.additionalProperties) ? s.additionalProperties : undefined));
  return { root: shape.root, at };
}

export function elementOf(shape: Shape, i: number): Shape {
  return { root: shape.root, at: first(shape, (s) => list(s.prefixItems)[i] ?? (isDoc(s.items) ? s.items : undefined)) };
}

/** titleOf returns the title of a value for users; empty if the schema has none. */
export const titleOf = (shape: Shape) => first(shape, (s) => (typeof s.title === 'string' && s.title.trim() ? s.title : undefined)) ?? '';

const isEmpty = (v: unknown): boolean =>
  v === null || v === undefined || v === '' || (Array.isArray(v) && v.every(isEmpty)) || (isDoc(v) && Object.values(v).every(isEmpty));
export { isDoc, isEmpty };

export interface Entry { key: string; value: unknown; shape: Shape }

/** entriesOf returns what an object has, in the order of its schema; what the schema does not name is the last. Empty values are left out. */
export function entriesOf(value: Doc, shape: Shape): Entry[] {
  const known = parts(shape).flatMap((s) => (isDoc(s.properties) ? Object.keys(s.properties) : []));
  const keys = [...new Set([...known.filter((k) => Object.hasOwn(value, k)), ...Object.keys(value)])];
  return keys.map((key) => ({ key, value: value[key], shape: propertyOf(shape, key) })).filter((e) => !isEmpty(e.value));
}

const isChoice = (shape: Shape) => first(shape, (s) => (Array.isArray(s.enum) || 'const' in s ? true : undefined)) ?? false;
const isRequired = (shape: Shape, key: string) => parts(shape).some((s) => list(s.required).includes(key));
const isText = (e: Entry) => typeof e.value === 'string' && !isChoice(e.shape);
/** A value that stands in a line with others. */
const isShort = ({ value }: Entry) => typeof value === 'number' || typeof value === 'boolean' || (typeof value === 'string' && value.length <= 60 && !value.includes('\n'));

/** An object of a list in its parts: the text that names it, whether something is so, what is short, and the rest. */
export interface Card { heading?: Entry; check?: Entry; short: Entry[]; rest: Entry[] }

/**
 * cardOf arranges an object by the form of its values: its first text, one that is always there if possible, is the heading, and the only
 * yes or no is a mark.
 */
export function cardOf(value: Doc, shape: Shape): Card {
  const all = entriesOf(value, shape);
  const texts = all.filter(isText);
  const heading = texts.find((e) => isRequired(shape, e.key)) ?? texts[0];
  const checks = all.filter((e) => typeof e.value === 'boolean');
  const check = checks.length === 1 ? checks[0] : undefined;
  const others = all.filter((e) => e !== heading && e !== check);
  // A single text explains the heading, whatever its length.
  const short = others.length === 1 && isText(others[0]) ? [] : others.filter(isShort);
  return { heading, check, short, rest: others.filter((e) => !short.includes(e)) };
}

/** The items of one kind, in the order in which they came. */
export interface Kind { id: string; shape: Shape; values: unknown[] }

/** kindsOf groups items by their kind: those of the template in its order, then those that it does not know. */
export function kindsOf(items: readonly Item[], t: Template | undefined): Kind[] {
  const ids = [...new Set([...(t?.items ?? []).map((i) => i.id), ...items.map((i) => i.kind)])];
  return ids.map((id) => ({
    id, shape: shapeOf(t?.items.find((i) => i.id === id)?.schema), values: items.filter((i) => i.kind === id).map((i) => i.value),
  })).filter((k) => k.values.length > 0);
}

/** tally counts a list whose objects all state the same yes or no; null for another list. */
export function tally(values: readonly unknown[], shape: Shape): { yes: number; of: Entry } | null {
  const checks = values.map((v) => (isDoc(v) ? cardOf(v, shape).check : undefined));
  const one = checks[0];
  if (!one || !checks.every((c) => c?.key === one.key)) return null;
  return { yes: checks.filter((c) => c!.value === true).length, of: one };
}

/** matching returns the templates whose title, description or name has all of some words. */
export function matching(all: readonly Template[], words: string, text: (t: Template) => string): Template[] {
  const want = words.toLowerCase().split(/\s+/).filter(Boolean);
  return want.length === 0 ? [...all] : all.filter((t) => {
    const in_ = text(t).toLowerCase();
    return want.every((w) => in_.includes(w));
  });
}
