import { expect, test, vi } from 'vitest';
import { follow, type Link } from '../src/lib/sse';
import { multiplexed, shareOf, shares, type Share, type Tab } from '../src/lib/tab';

/** Waits longer than the second of vi.waitFor, which a busy machine may need. */
const eventually = (holds: () => unknown) => vi.waitFor(holds, { timeout: 20_000 });

/** A tab of which the test decides what it is. */
function tabOf(share: () => Share | null) {
  let wake: (() => void)[] = [];
  const tab: Tab & { isHidden: boolean; show: (visible: boolean) => void } = {
    isHidden: false,
    hidden: () => tab.isHidden,
    changed: (signal) => new Promise((resolve) => {
      wake.push(resolve);
      signal.addEventListener('abort', () => resolve());
    }),
    share: async () => share(),
    show: (visible) => {
      tab.isHidden = !visible;
      const all = wake;
      wake = [];
      for (const f of all) f();
    },
  };
  return tab;
}

/** Numbered events without an end, for connections that begin after the last event of the former one. */
function server() {
  const events: string[] = [];
  const asked: string[] = [];
  const writers = new Set<ReadableStreamDefaultController<Uint8Array>>();
  const frame = (i: number) => new TextEncoder().encode(`id: 1-${i}\nevent: token\ndata: ${events[i]}\n\n`);
  return {
    asked, writers,
    send(data: string) {
      events.push(data);
      for (const w of writers) w.enqueue(frame(events.length - 1));
    },
    fetch: (async (_: string, init: RequestInit) => {
      const last = new Headers(init.headers).get('Last-Event-ID') ?? '';
      asked.push(last);
      let writer!: ReadableStreamDefaultController<Uint8Array>;
      const body = new ReadableStream<Uint8Array>({
        start(w) {
          writer = w;
          writers.add(w);
          for (let i = last ? Number(last.split('-')[1]) + 1 : 0; i < events.length; i++) w.enqueue(frame(i));
        },
        cancel: () => void writers.delete(writer),
      });
      init.signal!.addEventListener('abort', () => {
        if (writers.delete(writer)) writer.error(new DOMException('aborted', 'AbortError'));
      });
      return new Response(body);
    }) as typeof fetch,
  };
}

function reader(tab: Tab, at: ReturnType<typeof server>, more: { always?: boolean } = {}) {
  const got: string[] = [];
  const links: Link[] = [];
  const stop = new AbortController();
  let last = '';
  const poll = vi.fn(async () => 1);
  const ended = follow({
    url: '/events', headers: () => ({}), lastId: () => last, ended: () => false, poll, signal: stop.signal, tab, fetch: at.fetch,
    onFrame: (f) => {
      last = f.id;
      got.push(f.data);
    },
    onLink: (l) => links.push(l),
    sleep: (ms, signal) => new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.min(ms, 20));
      signal.addEventListener('abort', () => {
        clearTimeout(timer);
        resolve();
      });
    }),
    ...more,
  });
  return { got, links, poll, end: async () => { stop.abort(); await ended; } };
}

test('a hidden tab has no stream, asks for the status, and misses nothing when it is shown again', async () => {
  const at = server();
  const free = vi.fn();
  const tab = tabOf(() => ({ turn: 0, release: free }));
  const r = reader(tab, at);
  at.send('a');
  await eventually(() => expect(r.got).toEqual(['a']));
  expect(r.poll).not.toHaveBeenCalled();
  tab.show(false);
  await eventually(() => expect(at.writers.size).toBe(0));
  await eventually(() => expect(r.poll.mock.calls.length).toBeGreaterThan(1));
  expect(free).toHaveBeenCalledTimes(1);
  at.send('b');
  tab.show(true);
  at.send('c');
  await eventually(() => expect(r.got).toEqual(['a', 'b', 'c']));
  expect(at.asked).toEqual(['', '1-0']);
  expect(r.links).not.toContain('waiting');
  await r.end();
  expect(free).toHaveBeenCalledTimes(2);
});

test('a conference is followed in a hidden tab, too', async () => {
  const at = server();
  const tab = tabOf(() => ({ turn: 0, release: () => {} }));
  tab.show(false);
  const r = reader(tab, at, { always: true });
  at.send('a');
  await eventually(() => expect(r.got).toEqual(['a']));
  await r.end();
});

test('a tab without a share of the connections reports it, and reads the stream once it has one', async () => {
  const at = server();
  let share: Share | null = null;
  const tab = tabOf(() => share);
  const r = reader(tab, at);
  await eventually(() => expect(r.poll.mock.calls.length).toBeGreaterThan(1));
  expect(at.asked).toEqual([]);
  expect(r.links.at(-1)).toBe('crowded');
  at.send('a');
  share = { turn: 0, release: () => {} };
  await eventually(() => expect(r.got).toEqual(['a']));
  expect(r.links.at(-1)).toBe('live');
  await r.end();
});

test('a stream ends after its turn and continues behind the others', async () => {
  const at = server();
  const r = reader(tabOf(() => ({ turn: 30, release: () => {} })), at);
  at.send('a');
  await eventually(() => expect(at.asked.length).toBeGreaterThan(2));
  at.send('b');
  await eventually(() => expect(r.got).toEqual(['a', 'b']));
  expect(r.poll).not.toHaveBeenCalled();
  await r.end();
});

test('tabs have as many shares as there are, and get those that are released', async () => {
  const held = new Map<string, Promise<unknown>>();
  const locks = {
    request: (name: string, _: LockOptions, f: (lock: Lock | null) => unknown) => {
      if (held.has(name)) return Promise.resolve(f(null));
      const done = Promise.resolve(f({ name } as Lock)).then(() => held.delete(name));
      held.set(name, done);
      return done;
    },
  } as Pick<LockManager, 'request'>;
  const all: (Share | null)[] = [];
  for (let i = 0; i < shares + 2; i++) all.push(await shareOf(locks));
  expect(all.map((s) => s !== null)).toEqual([...Array<boolean>(shares).fill(true), false, false]);
  all[1]!.release();
  await eventually(async () => expect(await shareOf(locks)).not.toBeNull());
  expect(await shareOf(locks)).toBeNull();
});

test('HTTP/2 and newer need no shares', () => {
  expect(['h2', 'h3', 'h3-29', 'http/1.1', 'http/1.0', ''].map(multiplexed)).toEqual([true, true, true, false, false, false]);
});
