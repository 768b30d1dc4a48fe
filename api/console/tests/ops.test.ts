import { expect, test, vi } from 'vitest';
import type { Api } from '../src/lib/api';
import type { ConferenceView } from '../src/lib/openapi';
import { actionResult, auditText, Changes, link, nextCall, place, queueTrouble, rareChanges, recoveries, type Change } from '../src/lib/ops';
import { consoleWords, valueWord } from '../src/lib/words';

test('a view has the parts and filters of its address', () => {
  for (const [parts, filters] of [
    [[], {}], [['fleet'], { state: 'dead', pool: 'translate:zh-en' }], [['tasks', 'auth0|o/lga', 't.1'], {}], [['pools', 'a+b'], { x: '%' }],
  ] as [string[], Record<string, string>][]) expect(place(link(parts, filters))).toEqual({ parts, filters });
  expect(link(['tasks'], { userId: '', status: 'FAILED' })).toBe('#/console/tasks?status=FAILED');
  expect(place('#/tasks')).toBeNull();
  expect(place('#/consoles')).toBeNull();
  expect(place('#/console/%E0%A4%A')).toEqual({ parts: ['%E0%A4%A'], filters: {} });
});

test('changes make the views that show them read again, at most once a second', () => {
  vi.useFakeTimers();
  let recent: Change[] = [];
  const all = new Changes({} as Api, (r) => (recent = r), () => {});
  const [nodes, tasks] = [vi.fn(), vi.fn()];
  const stop = all.watch(['node'], nodes);
  all.watch(['task'], tasks);
  const send = (type: string, id = '1-1') => all.take({ id, event: type, data: JSON.stringify({ type, ts: 1 }) });
  for (let i = 0; i < 500; i++) send('node');
  vi.advanceTimersByTime(1100);
  expect(nodes).toHaveBeenCalledTimes(1);
  expect(tasks).not.toHaveBeenCalled();
  expect(recent).toHaveLength(100);
  for (let i = 0; i < 500; i++) send('task');
  expect(recent.filter((c) => c.type === 'node'), 'changes of tasks displace no others').toHaveLength(100);
  expect(recent[0].type).toBe('task');
  send('reset');
  vi.advanceTimersByTime(1100);
  expect(nodes).toHaveBeenCalledTimes(2);
  expect(tasks).toHaveBeenCalledTimes(1);
  stop();
  send('node');
  all.take({ id: '', event: 'node', data: 'not JSON' });
  all.close();
  vi.advanceTimersByTime(5000);
  expect(nodes).toHaveBeenCalledTimes(2);
  vi.useRealTimers();
});

test('a row of the audit log has the values that an operator sent, and a refused action does not look like a change', () => {
  const label = (key: string) => ({ cap: 'Concurrent calls', reason: 'Reason' })[key] ?? key;
  expect(auditText({ cap: 3, rpm: null, paused: true, reason: 'costs' }, label)).toBe('Concurrent calls: 3, rpm: –, paused: true, Reason: costs');
  expect(auditText({ tenants: ['a', 'b'], times: { media: { suspectAfterMs: 5 } }, omitted: ['asr'] }, label)).toBe('tenants: a / b, times: media suspectAfterMs 5, omitted: asr');
  expect(auditText({ steps: [{ name: 'ocr', model: 'm1' }, { name: 'match', model: 'm2' }] }, label)).toBe('steps: ocr (m1) → match (m2)');
  expect([auditText({}, label), auditText(undefined, label)]).toEqual(['', '']);
  expect([200, 404, 503, 0].map((s) => Object.values(actionResult(s)).join())).toEqual(['done: HTTP 200,done', 'h_refused: HTTP 404,failed', 'failed: HTTP 503,failed', 'h_none,failed']);
  for (const lang of ['en', 'zh'] as const) for (const value of ['done', 'h_refused', 'failed', 'h_none']) expect(valueWord(value, lang)).toBeTruthy();
});

test('a recovery lasts from the loss of a unit to the next one, with the commands between', () => {
  const at = (s: number) => new Date(1_700_000_000_000 + 1000 * s).toISOString();
  const c = {
    status: 'open',
    segments: [
      { nodeId: 'u1', startedAt: at(0), endedAt: at(10), reason: 'unit_lost' },
      { nodeId: 'u2', startedAt: at(12), endedAt: at(20), reason: 'drained' },
      { nodeId: 'u3', startedAt: at(21) },
    ],
    orders: [
      { at: at(0), command: 'CreateConference', nodeId: 'u1' }, { at: at(11), command: 'RecoverConference', nodeId: 'u3', outcome: 'refused: full' },
      { at: at(12), command: 'RecoverConference', nodeId: 'u2', outcome: 'acknowledged' }, { at: at(20.5), command: 'RecoverConference', nodeId: 'u3' },
    ],
  } as unknown as ConferenceView;
  const found = recoveries(c);
  expect(found.map((r) => [r.from, r.to, r.recoveredAt - r.lostAt, r.orders.length])).toEqual([['u1', 'u2', 2000, 2], ['u2', 'u3', 1000, 1]]);
  const lost: ConferenceView = { ...c, status: 'awaiting-recovery', segments: c.segments.slice(0, 1) };
  expect(recoveries(lost).map((r) => [r.to, r.recoveredAt, r.orders.length])).toEqual([['', 0, 3]]);
  expect(recoveries({ ...lost, status: 'ended' })).toEqual([]);
});

test('a planned move is not a recovery', () => {
  const at = (s: number) => new Date(1_700_000_000_000 + 1000 * s).toISOString();
  const c = {
    status: 'open', orders: [],
    segments: [
      { nodeId: 'u1', startedAt: at(0), endedAt: at(10), reason: 'drained' }, { nodeId: 'u2', startedAt: at(10), endedAt: at(20), reason: 'unit_lost' },
      { nodeId: 'u3', startedAt: at(22) },
    ],
  } as unknown as ConferenceView;
  expect(recoveries(c).map((r) => r.planned)).toEqual([true, false]);
});

test('a task queue needs attention without pollers, or with work that waits long', () => {
  const q = (name: string, pollers: number, backlog: number, backlogAgeMs = 0, model = false) => ({ name, pollers, backlog, backlogAgeMs, model });
  const found = queueTrouble([
    q('tasks', 0, 0), q('turns', 1, 0), q('links', 2, 5, 45_000), q('executions', 1, 5, 20), q('paid.a', 0, 0, 0, true), q('paid.b', 0, 1, 50, true),
  ]);
  expect(found.unpolled.map((x) => x.name)).toEqual(['tasks', 'paid.b']);
  expect(found.slow.map((x) => x.name)).toEqual(['links']);
});

test('changes of single tasks do not hide rare ones', () => {
  const all = (['task', 'node', 'task', 'conference'] as const).map((type) => ({ type, ts: 1 }));
  expect(rareChanges(all).map((c) => c.type)).toEqual(['node', 'conference']);
});

test('no call can start now while all slots are in use, or while one probes', () => {
  const m = { paused: false, probing: false, inUse: 0, cap: 5, nextGrantMs: 0 };
  expect(nextCall(m)).toBe(0);
  expect(nextCall({ ...m, inUse: 5 })).toBe('blocked');
  expect(nextCall({ ...m, probing: true, inUse: 1 })).toBe('blocked');
  expect(nextCall({ ...m, nextGrantMs: 300 })).toBe(300);
  expect(nextCall({ ...m, paused: true, pausedBy: 'operator' })).toBe('blocked');
});

test('no text of the console is missing in Chinese', () => {
  for (const [key, text] of Object.entries(consoleWords.zh)) expect(text, key).not.toBe('');
});
