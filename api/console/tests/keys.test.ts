import { describe, expect, it } from 'vitest';
import { keyForm, keySpec, keyState } from '../src/lib/keys';

describe('keyState', () => {
  const now = Date.parse('2026-11-28T12:00:00Z');
  it.each([
    [{}, 'key_valid'], [{ expiresAt: '2026-11-28T12:00:01Z' }, 'key_valid'], [{ expiresAt: '2026-11-28T12:00:00Z' }, 'key_expired'],
    [{ expiresAt: '2020-01-01T00:00:00Z', revokedAt: '2026-11-27T12:00:00Z' }, 'key_revoked'],
  ])('%j is %s', (k, want) => expect(keyState(k, now)).toBe(want));
});

describe('keySpec', () => {
  const key = { title: 'Nightly', models: ['large', 'small'], rpm: 60, serviceTiers: ['flex'], endUsers: true, durability: 'durable' as const, retention: '24h', replaceResponses: true, expiresAt: '2099-01-02T15:04:05.678Z' };
  it('has the settings of a key that was not changed', () => expect(keySpec(keyForm(key), key)).toEqual({ ...key, tpm: 0, maxCalls: 0 }));
  it('has no limits and no end where the fields are empty', () => {
    expect(keySpec(keyForm(null), null)).toEqual({ title: '', models: [], rpm: 0, tpm: 0, maxCalls: 0, serviceTiers: [], endUsers: false, durability: 'durable', retention: '', replaceResponses: false });
    expect(keySpec({ ...keyForm(key), expires: '', models: '', rpm: '' }, key)).toEqual({ title: 'Nightly', models: [], rpm: 0, tpm: 0, maxCalls: 0, serviceTiers: ['flex'], endUsers: true, durability: 'durable', retention: '24h', replaceResponses: true });
  });
  it('reads what was entered', () => {
    const spec = keySpec({ title: ' Batch ', models: 'a\n a, b', rpm: '5', tpm: '1000', maxCalls: '2', tiers: ['scale'], endUsers: false, durability: 'direct', retention: '24h', replaceResponses: true, expires: '2099-01-02T16:30' }, key);
    expect(spec).toMatchObject({ title: 'Batch', models: ['a', 'b'], rpm: 5, tpm: 1000, maxCalls: 2, serviceTiers: ['scale'], durability: 'direct', retention: 'none', replaceResponses: false });
    expect(new Date(spec.expiresAt!).getTime()).toBe(new Date(2099, 0, 2, 16, 30).getTime());
  });
  it('has the default retention for a direct key that becomes durable', () => {
    const direct = { durability: 'direct' as const, retention: 'none' };
    expect(keySpec({ ...keyForm(direct), durability: 'durable' }, direct).retention).toBe('');
  });
  it('does not change the key with the fields', () => {
    keyForm(key).tiers.push('scale');
    expect(key.serviceTiers).toEqual(['flex']);
  });
});
