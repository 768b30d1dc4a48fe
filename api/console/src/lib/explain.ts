// Turns a failed call into a line for the person in front of it.
import { Problem } from './api';
import type { i18n as I18n } from './i18n.svelte';

/** explain prefers the page's own words for what is the house's fault, and the API's for what is wrong in the input. */
export function explain(err: unknown, i18n: typeof I18n): string {
  if (!(err instanceof Problem)) return err instanceof Error ? err.message : String(err);
  if (err.status === 0) return i18n.t.unreachable;
  const own = i18n.maybe(`e_${err.code}`, '');
  const said = own || capital(err.message);
  return err.retryAfter > 0 ? `${said} ${i18n.t.tryIn} ${err.retryAfter} ${i18n.t.seconds}` : said;
}

const capital = (s: string) => s.charAt(0).toUpperCase() + s.slice(1);
