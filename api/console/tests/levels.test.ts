import { describe, expect, it } from 'vitest';
import { cell, chosen, failures, lines, namesIn } from '../src/lib/levels';
import type { CallLevel, UsageSum } from '../src/lib/openapi';

const level = (id: string, inUse: number, waiting: number, levels: CallLevel[] = []): CallLevel => ({ kind: 'user', id, weight: 1, inUse, waiting, levels });

describe('lines', () => {
  const tree = { inUse: 5, waiting: 100, levels: [level('a', 3, 60, [level('x', 1, 50), level('y', 2, 10)]), level('b', 1, 20, [level('z', 1, 5)])] };
  const shown = (filtered: boolean) => lines(tree, filtered).map((l) => `${' '.repeat(l.depth)}${l.level?.id ?? '…'} ${l.inUse}+${l.waiting}`);
  it('lists the levels with those that are left of each', () => {
    expect(shown(false)).toEqual(['a 3+60', ' x 1+50', ' y 2+10', 'b 1+20', ' z 1+5', ' … 0+15', '… 1+20']);
  });
  it('counts no others where only a part was asked for', () => {
    expect(shown(true)).toEqual(['a 3+60', ' x 1+50', ' y 2+10', 'b 1+20', ' z 1+5']);
  });
  it('has a key of its own for each line', () => {
    const keys = lines(tree, false).map((l) => l.key);
    expect(new Set(keys).size).toBe(keys.length);
  });
  it('is empty without calls', () => expect(lines({ inUse: 0, waiting: 0, levels: [] }, false)).toEqual([]));
});

describe('failures', () => {
  const sum = (upstream: string, outcome: string, calls: number, cause = '') => ({ upstream, outcome, cause, calls }) as UsageSum;
  it('lists the causes of each upstream, the most frequent first, without what did not fail', () => {
    expect([...failures([sum('eu', 'success', 9), sum('eu', 'interrupted', 1), sum('us', 'cancelled', 1), sum('eu', 'provider_unavailable', 3, 'rate_limit'), sum('eu', 'provider_unavailable', 2, 'overloaded')])]).toEqual([
      ['eu', [
        { outcome: 'provider_unavailable', cause: 'rate_limit', calls: 3 }, { outcome: 'provider_unavailable', cause: 'overloaded', calls: 2 },
        { outcome: 'interrupted', cause: 'interrupted', calls: 1 },
      ]],
    ]);
  });
});

describe('namesIn', () => {
  it.each([['', []], ['ann', ['ann']], [' ann ,bob\n\n李雷,ann', ['ann', 'bob', '李雷']]])('%j', (text, want) => expect(namesIn(text)).toEqual(want));
});

describe('chosen', () => {
  it.each([[undefined, ['team', 'model']], ['day,team', ['team', 'day']], ['colour', []]])('%j', (by, want) => expect(chosen(by)).toEqual(want));
  it('has a value of each sum', () => expect(cell({ teamId: 't', day: '2026-01-31' } as UsageSum, 'day')).toBe('2026-01-31'));
  it('has the key of each sum', () => expect([chosen('key'), cell({ userId: 'u', keyId: 'key_1' } as UsageSum, 'key')]).toEqual([['key'], 'key_1']));
});
