// What the console makes of API keys and budgets.
import { namesIn } from './levels';
import type { Key } from './openapi';

export type KeyState = 'key_valid' | 'key_expired' | 'key_revoked';

/** The state of a key at a time. A revoked key is no longer shown as expired. */
export function keyState(k: Pick<Key, 'expiresAt' | 'revokedAt'>, now: number): KeyState {
  if (k.revokedAt) return 'key_revoked';
  return k.expiresAt && Date.parse(k.expiresAt) <= now ? 'key_expired' : 'key_valid';
}

export const keyTone = (s: KeyState) => ({ key_valid: 'done', key_expired: 'failed', key_revoked: 'stopped' })[s];

/** The values of service_tier that a key may allow. */
export const serviceTiers = ['flex', 'priority', 'scale'] as const;

/** What the dialog of a key has in its fields. */
export interface KeyForm {
  title: string; models: string; rpm: string; tpm: string; maxCalls: string; tiers: string[]; endUsers: boolean; durability: string; retention: string; replaceResponses: boolean;
  /** In the zone of the browser, as an input of the type datetime-local has it. */
  expires: string;
}

/** The fields of a key, or of a new one. */
export function keyForm(k: Partial<Key> | null): KeyForm {
  const limit = (n?: number) => (n ? String(n) : '');
  return {
    title: k?.title ?? '', models: (k?.models ?? []).join('\n'), rpm: limit(k?.rpm), tpm: limit(k?.tpm), maxCalls: limit(k?.maxCalls), tiers: [...(k?.serviceTiers ?? [])],
    endUsers: k?.endUsers ?? false, durability: k?.durability ?? 'durable', retention: k?.retention ?? '', replaceResponses: k?.replaceResponses ?? false, expires: k?.expiresAt ? localTime(new Date(k.expiresAt)) : '',
  };
}

/** The settings that fields mean. `of` is the key: an end that was not changed keeps its seconds. */
export function keySpec(f: KeyForm, of: Partial<Key> | null) {
  const kept = of?.expiresAt && f.expires === localTime(new Date(of.expiresAt)) ? of.expiresAt : '';
  return {
    title: f.title.trim(), models: namesIn(f.models), rpm: Number(f.rpm) || 0, tpm: Number(f.tpm) || 0, maxCalls: Number(f.maxCalls) || 0,
    serviceTiers: f.tiers, endUsers: f.endUsers, durability: f.durability as 'durable' | 'direct', retention: retention(f), replaceResponses: f.replaceResponses && f.durability === 'durable',
    ...(f.expires ? { expiresAt: kept || new Date(f.expires).toISOString() } : {}),
  };
}

/** The retention that fields mean: the default for an empty one, and for direct calls the only one. */
const retention = (f: KeyForm) => (f.durability === 'direct' ? 'none' : f.retention.trim() === 'none' ? '' : f.retention.trim());

/** A time in the zone of the browser, such as 2026-11-28T03:40. */
function localTime(d: Date): string {
  const two = (n: number) => String(n).padStart(2, '0');
  return `${String(d.getFullYear()).padStart(4, '0')}-${two(d.getMonth() + 1)}-${two(d.getDate())}T${two(d.getHours())}:${two(d.getMinutes())}`;
}
