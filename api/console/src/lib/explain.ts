// Turns a failed call into a message for the user.
import { Problem } from './api';
import type { i18n as I18n } from './i18n.svelte';

/** explain returns the page's text for the problem's code if there is one, otherwise the API's message. */
export function explain(err: unknown, i18n: typeof I18n): string {
  if (!(err instanceof Problem)) return err instanceof Error ? err.message : String(err);
  if (err.status === 0) return i18n.t.unreachable;
  const own = i18n.maybe(`e_${err.code}`, '');
  const message = own || capital(err.message);
  return err.retryAfter > 0 ? `${message} ${i18n.t.tryIn} ${err.retryAfter} ${i18n.t.seconds}` : message;
}

const capital = (s: string) => s.charAt(0).toUpperCase() + s.slice(1);
