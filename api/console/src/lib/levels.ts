// What the console makes of the levels of a model, of teams and applications, and of sums of usage.
import type { CallLevel, ModelLevels, UpstreamState, UsageSum } from './openapi';

/** A line of the tree: a level, or the others of its level, which are not listed. */
export interface Line { depth: number; level: CallLevel | null; inUse: number; waiting: number; key: string }

/** lines returns the levels of a model in the order in which they are shown, with what is left of each level behind those that are listed. */
export function lines(m: Pick<ModelLevels, 'levels' | 'inUse' | 'waiting'>, filtered: boolean): Line[] {
  const below = (levels: CallLevel[], above: { inUse: number; waiting: number }, depth: number, key: string): Line[] => {
    const out = levels.flatMap((l): Line[] => {
      const own = `${key}/${l.kind}:${l.id}`;
      return [{ depth, level: l, inUse: l.inUse, waiting: l.waiting, key: own }, ...below(l.levels ?? [], l, depth + 1, own)];
    });
    const rest = (of: 'inUse' | 'waiting') => Math.max(0, above[of] - levels.reduce((sum, l) => sum + l[of], 0));
    if (levels.length && !filtered && rest('inUse') + rest('waiting') > 0) {
      out.push({ depth, level: null, inUse: rest('inUse'), waiting: rest('waiting'), key: `${key}/…` });
    }
    return out;
  };
  return below(m.levels, m, 0, '');
}

/** The words for why a level waits, and for the state of an upstream, are those of the values why_… and u_…. */
export const whyValue = (l: CallLevel) => (l.why ? `why_${l.why}` : '');
export const upstreamValue = (u: UpstreamState) => `u_${u.state}`;

/** The failed calls of each upstream by their cause, or else their code, the most frequent first. */
export function failures(sums: UsageSum[]): Map<string, { outcome: string; cause: string; calls: number }[]> {
  const of = new Map<string, { outcome: string; cause: string; calls: number }[]>();
  for (const s of sums) {
    const outcome = s.outcome ?? '';
    if (outcome === 'success' || outcome === 'cancelled') continue;
    const upstream = s.upstream ?? '';
    of.set(upstream, [...(of.get(upstream) ?? []), { outcome, cause: s.cause || outcome, calls: s.calls }]);
  }
  for (const list of of.values()) list.sort((a, b) => b.calls - a.calls || a.cause.localeCompare(b.cause));
  return of;
}

/** The names in a text, one a line or separated by commas, without duplicates. */
export const namesIn = (text: string) => [...new Set(text.split(/[\n,]/).map((n) => n.trim()).filter(Boolean))];

/** What sums may be by, in the order of their columns. */
export const dimensions = ['team', 'app', 'key', 'user', 'service', 'template', 'model', 'upstream', 'day', 'outcome', 'cause'] as const;
export type Dimension = (typeof dimensions)[number];

/** The dimensions of a filter; team and model for none. */
export function chosen(by: string | undefined): Dimension[] {
  const list = (by ?? 'team,model').split(',');
  return dimensions.filter((d) => list.includes(d));
}

/** The value of a sum in a dimension. */
export function cell(s: UsageSum, d: Dimension): string {
  return { team: s.teamId, app: s.appId, key: s.keyId, user: s.userId, service: s.serviceId, template: s.template, model: s.model, upstream: s.upstream, day: s.day, outcome: s.outcome, cause: s.cause }[d] ?? '';
}
