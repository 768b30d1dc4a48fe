// Reads a task's event stream with fetch. EventSource would do the parsing, but it hides the HTTP status (an expired
// token looks like a network error), cannot send a bearer token, and cannot start after a given id.
import { createParser } from 'eventsource-parser';
import { at } from './home';
import { tab as thisTab, type Tab } from './tab';

/** One event before its data is decoded. */
export interface Frame {
  id: string;
  event: string;
  data: string;
}

/**
 * Decodes text/event-stream from bytes in pieces of any size. Frames without data and incomplete frames at the end of the connection are
 * discarded; the next connection sends them again. Unlike that of EventSource, a frame has only an id of its own: one without it, such
 * as a position in the queue, is not a repeat.
 */
export class Decoder {
  private text = new TextDecoder(); // removes a byte order mark
  private frames: Frame[] = [];
  private parser = createParser({ onEvent: (e) => this.frames.push({ id: e.id ?? '', event: e.event ?? 'message', data: e.data }) });

  push(bytes: Uint8Array): Frame[] {
    this.frames = [];
    this.parser.feed(this.text.decode(bytes, { stream: true }));
    return this.frames;
  }
}

/** The state of the connection to a task's events. crowded: other tabs have all connections. down: its status cannot be fetched either. */
export type Link = 'connecting' | 'live' | 'waiting' | 'crowded' | 'polling' | 'down' | 'closed';

/** The dependencies of follow, passed as functions so that tests can replace them. */
export interface FollowOptions {
  /** The address, or a function that returns one for each connection. */
  url: string | (() => Promise<string>);
  headers: () => Record<string, string>;
  /** The id of the last event that was handled; empty for none. */
  lastId: () => string;
  onFrame: (frame: Frame) => void;
  onLink?: (link: Link) => void;
  /** Whether the terminal event was handled. */
  ended: () => boolean;
  /** Fetches the task's status instead; returns the milliseconds until the next poll. */
  poll: () => Promise<number>;
  signal: AbortSignal;
  fetch?: typeof fetch;
  sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  /** A connection without data (heartbeats included) for this long is closed. */
  idleMs?: number;
  /** The stream is also needed while the tab is hidden. */
  always?: boolean;
  /** The stream ends soon, because its events are in the past: it needs no share of the connections. */
  brief?: boolean;
  tab?: Tab;
}

/** The server refused the request and a retry will not help. */
export class Refused extends Error {
  constructor(readonly status: number) {
    super(`the event stream answered ${status}`);
  }
}

const minDelay = 400;
const maxDelay = 10_000;
/** How often a hidden tab fetches the status, which its title shows. */
const hiddenDelay = 10_000;

/**
 * follow reads events up to the terminal one and reconnects after the last handled id. After two consecutive failures,
 * or if there is no stream (not opened yet, or expired), it polls the status between attempts; so it does while the tab is hidden, or
 * other tabs have all connections. It returns when ended() is true or the signal is aborted, and throws Refused for 401 and 403.
 */
export async function follow(o: FollowOptions): Promise<void> {
  const sleep = o.sleep ?? pause;
  const tab = o.tab ?? thisTab;
  const link = o.onLink ?? (() => {});
  const resting = () => !o.always && !o.brief && tab.hidden();
  let failures = 0;
  let down = false;
  /** Fetches the status, and returns how long to wait. */
  const poll = async (state: Link, wait: number) => {
    if (!down) link(state);
    try {
      wait = Math.min(wait, Math.max(minDelay, await o.poll()));
      down = false;
      link(state);
    } catch (err) {
      if (err instanceof Refused) throw err;
      if (!o.signal.aborted) {
        down = true;
        link('down');
      }
    }
    return wait;
  };
  while (!o.ended() && !o.signal.aborted) {
    if (resting()) {
      await o.poll().catch(() => {});
      if (!o.ended()) await shown(tab, o.signal, (signal) => sleep(hiddenDelay, signal));
      continue;
    }
    const share = o.brief ? null : await tab.share();
    if (!share && !o.brief) {
      const wait = await poll('crowded', maxDelay);
      if (!o.ended()) await shown(tab, o.signal, (signal) => sleep(wait, signal));
      continue;
    }
    if (!down) link(failures === 0 ? 'connecting' : 'waiting');
    let absent = false;
    const stop = childOf(o.signal);
    const timer = share?.turn ? setTimeout(() => stop.abort(), share.turn) : undefined;
    if (!o.always && !o.brief) void tab.changed(stop.signal).then(() => stop.abort());
    if (resting()) stop.abort(); // hidden meanwhile
    try {
      const got = await once(o, stop.signal, () => {
        down = false;
        link('live');
      });
      absent = got.absent;
      if (got.frames > 0) failures = 0;
    } catch (err) {
      if (err instanceof Refused) throw err;
    } finally {
      clearTimeout(timer);
      share?.release();
    }
    if (o.ended() || o.signal.aborted) break;
    if (stop.signal.aborted) continue; // on purpose
    stop.abort();
    failures++;
    let wait = Math.min(maxDelay, minDelay * 2 ** (failures - 1)) * (0.75 + Math.random() / 2);
    if (absent || failures > 2) wait = await poll('polling', wait);
    else if (!down) link('waiting');
    if (o.ended() || o.signal.aborted) break;
    await sleep(wait, o.signal);
  }
  link('closed');
}

/** Waits for the end of a pause, or until the tab is shown or hidden. */
async function shown(tab: Tab, signal: AbortSignal, rest: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const stop = childOf(signal);
  await Promise.race([rest(stop.signal), tab.changed(stop.signal)]);
  stop.abort();
}

/** Returns a controller that is also aborted with a signal. */
function childOf(signal: AbortSignal): AbortController {
  const child = new AbortController();
  const abort = () => child.abort();
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort);
  child.signal.addEventListener('abort', () => signal.removeEventListener('abort', abort));
  return child;
}

async function once(o: FollowOptions, signal: AbortSignal, live: () => void): Promise<{ frames: number; absent: boolean }> {
  const inner = childOf(signal);
  const abort = () => inner.abort();
  let watchdog: ReturnType<typeof setTimeout> | undefined;
  const alive = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(abort, o.idleMs ?? 45_000);
  };
  try {
    alive();
    const headers: Record<string, string> = { Accept: 'text/event-stream', ...o.headers() };
    if (o.lastId()) headers['Last-Event-ID'] = o.lastId();
    signal.throwIfAborted();
    const res = await (o.fetch ?? fetch)(at(typeof o.url === 'string' ? o.url : await o.url()), { headers, cache: 'no-store', signal: inner.signal });
    if (res.status === 401 || res.status === 403) throw new Refused(res.status);
    if (res.status === 404 || res.status === 410 || res.status === 204) return { frames: 0, absent: true };
    if (!res.ok || !res.body) throw new Error(`the event stream answered ${res.status}`);
    live();
    const decoder = new Decoder();
    const reader = res.body.getReader();
    let frames = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { frames, absent: false };
      alive();
      for (const frame of decoder.push(value)) {
        o.onFrame(frame);
        frames++;
      }
      if (o.ended()) {
        void reader.cancel();
        return { frames, absent: false };
      }
    }
  } finally {
    clearTimeout(watchdog);
    inner.abort();
  }
}

/** pause waits until the time has passed, the browser is online again, or the signal is aborted. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', finish);
      globalThis.removeEventListener?.('online', finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    signal.addEventListener('abort', finish, { once: true });
    globalThis.addEventListener?.('online', finish, { once: true });
  });
}
