// Turns a failed call, or input that a field refused, into a message for the user.
import { Problem } from './api';
import type { Refusal } from './form';
import type { i18n as I18n, Word } from './i18n.svelte';

/** A message that is kept: it is rendered when it is shown, in the language that the page has then. */
export type Message = () => string;

/** The API's messages that users can do something about, with the page's text for each; {0} is the first captured number or size. */
const reasons: [RegExp, Word][] = [
  [/protected by a password/, 'r_encrypted'],
  [/file contains no text/, 'r_noText'],
  [/page contains no text/, 'r_emptyPage'],
  [/(?:file|its byte order mark) is damaged/, 'r_damaged'],
  [/image is (?:damaged|incomplete)/, 'r_brokenImage'],
  [/too complex/, 'r_complex'],
  [/cannot read (?:PDF|the characters of this PDF)/, 'r_noPDF'],
  [/fonts do not state their characters|only Adobe Reader shows/, 'r_unmapped'],
  [/encoding of the text is not|is UTF-8, but byte|NUL characters: save/, 'r_encoding'],
  [/must not be empty|no visible characters/, 'r_empty'],
  [/neither text nor a document/, 'r_unknown'],
  [/the file is (?:an? )?(.+), which is not supported: .*JPEG or PNG/, 'r_saveImage'],
  [/the file is (?:an? )?(.+), which is not supported: save it as DOCX or PDF/, 'r_saveDocument'],
  [/the file is (?:an? )?(.+), which is not supported: save it as PDF/, 'r_savePDF'],
  [/the file is (?:an? )?(.+), which is not supported: unpack it/, 'r_unpack'],
  [/the file is (?:an? )?(.+), which is not supported/, 'r_writeText'],
  [/is (\d+) pixels wide; at most (\d+) are read/, 'r_wide'],
  [/is (\d+) pixels high; at most (\d+) are read/, 'r_high'],
  [/has (\d+) x (\d+) pixels; at most (\d+) million/, 'r_pixels'],
  [/about (\d+) tokens, .*at most (\d+) fit/, 'r_context'],
  [/text of the file exceeds the limit of ([\d,]+ \w+)/, 'r_textLimit'],
  [/exceeds the limit of ([\d,]+ \w+)/, 'r_limit'],
  [/must not contain (U\+[0-9A-F]+)/, 'r_character'],
  [/must not contain text of another direction/, 'r_direction'],
  [/has no visible character$/, 'r_invisible'],
  [/is too long: (\d+) characters; at most (\d+)/, 'r_longName'],
  [/is too long: \d+ bytes; at most (\d+) characters/, 'r_longerName'],
  [/asset not found|content of the asset was erased/, 'r_assetGone'],
  [/text or the asset id of a text/, 'textOnly'],
  [/^task already finished/, 'r_taskEnded'],
  [/^template (\S+) is already deleted, by (.+); activate/, 'r_templateDeleted'],
];

/** reasonOf returns the page's text for a failed call, behind which the API's own message is shown if the page has none for it. */
export function reasonOf(err: unknown, i18n: typeof I18n): string {
  if (!(err instanceof Problem)) return err instanceof Error ? err.message : String(err);
  if (err.status === 0) return i18n.t.unreachable;
  for (const [pattern, word] of reasons) {
    const found = pattern.exec(err.message);
    if (!found) continue;
    return i18n.fill(word, ...found.slice(1).map((text) => amount(text, i18n)));
  }
  const own = i18n.maybe(`e_${err.code}`, '');
  if (own && !vague.has(err.code)) return own;
  if (own) return `${own} (${err.message})`;
  return i18n.lang === 'en' ? capital(err.message) : `${i18n.t.e_other}${err.message}`;
}

const units: Record<string, number> = { bytes: 1, KiB: 1 << 10, MiB: 1 << 20 };

/** Why a provider failed the task, as far as its user or operator can act: the API's sentences (docs/providers.md) with the page's text. */
const failures: [RegExp, Word][] = [
  [/texts are too long for the model/, 'p_context'],
  [/content filter of .* refused/, 'p_refused'],
  [/ has no credit:/, 'p_credit'],
  [/does not know the model or the address/, 'p_model'],
  [/too many requests of this server/, 'p_limit'],
  [/ is overloaded:/, 'p_overload'],
  [/did not answer in time:/, 'p_timeout'],
  [/request is too large for/, 'p_large'],
  [/asks this server to wait until (\S+ \S+ UTC),/, 'p_wait'],
  [/does not serve the region/, 'p_region'],
  [/something in front of .* refused the call/, 'p_blocked'],
  [/reached the token limit of the model/, 'p_tokens'],
  [/does not have the required format/, 'p_format'],
];

/** The codes of failures that have many causes: behind the page's text, the API's message states which. */
const general = new Set(['provider_rejected', 'provider_unavailable', 'invalid_output', 'interrupted']);

/** failureOf returns why a task failed. Of one that another response replaces, it says only that: nothing has to be tried again. */
export function failureOf({ code, message }: { code: string; message: string }, i18n: typeof I18n, replaced = false): string {
  if (replaced) return i18n.t.madeAgain;
  for (const [pattern, word] of failures) {
    const found = pattern.exec(message);
    if (found) return i18n.fill(word, ...found.slice(1));
  }
  const own = i18n.maybe(`e_${code}`, message || code);
  return general.has(code) && message && own !== message ? `${own} (${message})` : own;
}

/** amount formats a number, or a size with its unit, for the user's language; other texts remain as they are. */
function amount(text: string, i18n: typeof I18n): string {
  if (!/^\d/.test(text)) return text;
  const [digits, unit] = text.split(' ');
  const n = Number(digits.replaceAll(',', ''));
  return unit ? i18n.size(n * units[unit]) : i18n.number(n);
}

/** The codes whose text does not say what is wrong. */
const vague = new Set(['too_large', 'unsupported_media', 'proxy']);

/** explain returns the reason, and when to retry if the API states that. */
export function explain(err: unknown, i18n: typeof I18n): string {
  const reason = reasonOf(err, i18n);
  return err instanceof Problem && err.retryAfter > 0 ? `${reason} ${i18n.tryIn(err.retryAfter)}` : reason;
}

/** refusalOf returns why a field refused its input. */
export function refusalOf({ kind, size }: Refusal, i18n: typeof I18n): string {
  switch (kind) {
    case 'oversize': return i18n.tooLong(size);
    case 'empty': return i18n.t.r_empty;
    case 'unknown': return i18n.t.r_unknown;
    case 'textOnly': return i18n.t.textOnly;
  }
}

const capital = (s: string) => s.charAt(0).toUpperCase() + s.slice(1);
