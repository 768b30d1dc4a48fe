// What the console makes of webhooks.
import { namesIn } from './levels';
import type { Delivery, Webhook } from './openapi';

export const webhookState = (h: Pick<Webhook, 'disabledAt'>) => (h.disabledAt ? 'hook_disabled' : 'hook_enabled');

/** What the dialog of a webhook has in its fields. */
export interface WebhookForm { url: string; title: string; events: string; disabled: boolean; teamId: string; appId: string; userId: string; all: boolean }

export function webhookForm(h: Partial<Webhook> | null, team = ''): WebhookForm {
  return {
    url: h?.url ?? '', title: h?.title ?? '', events: (h?.events ?? []).join('\n'), disabled: !!h?.disabledAt,
    teamId: h?.teamId ?? team, appId: h?.appId ?? '', userId: h?.userId ?? '', all: h?.all ?? false,
  };
}

/** The request that fields mean. What a webhook is of cannot change. */
export function webhookSpec(f: WebhookForm, of: Partial<Webhook> | null) {
  const owner = (['teamId', 'appId', 'userId'] as const).filter((name) => !of && f[name].trim()).map((name) => [name, f[name].trim()]);
  return { url: f.url.trim(), title: f.title.trim(), events: namesIn(f.events), disabled: f.disabled, ...Object.fromEntries(owner), ...(!of && f.all ? { all: true } : {}) };
}

/** Why the last attempt failed; empty if it did not, or if there was none. */
export const lastProblem = (d: Pick<Delivery, 'log'>) => d.log?.at(-1)?.error ?? '';
