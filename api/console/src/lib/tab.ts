// What a tab knows of the other ones. Without HTTP/2, a browser opens six connections to a server, for all of its tabs. A seventh event
// stream would keep every tab from loading anything, so that only visible tabs have one, and at most `shares` of them.

/** How many connections the tabs use for streams; the others are for calls. */
export const shares = 4;

/** How long a stream lasts where the browser does not share the connections: another tab may wait for this one. */
const turn = 20_000;

export interface Share {
  /** Milliseconds after which another tab gets a connection; 0 for never. */
  turn: number;
  release: () => void;
}

export interface Tab {
  hidden: () => boolean;
  /** Waits until the tab is shown or hidden, or the signal is aborted. */
  changed: (signal: AbortSignal) => Promise<void>;
  /** Returns a connection for a stream, null if other tabs have all of them. */
  share: () => Promise<Share | null>;
}

const free: Share = { turn: 0, release: () => {} };

/** The tab of this page. */
export const tab: Tab = {
  hidden: () => globalThis.document?.hidden ?? false,
  changed: (signal) => new Promise((resolve) => {
    const done = () => {
      document.removeEventListener('visibilitychange', done);
      signal.removeEventListener('abort', done);
      resolve();
    };
    if (!globalThis.document || signal.aborted) return;
    document.addEventListener('visibilitychange', done);
    signal.addEventListener('abort', done);
  }),
  share: async () => {
    const entry = globalThis.document && (performance.getEntriesByType('navigation')[0] as PerformanceNavigationTiming | undefined);
    if (!entry || multiplexed(entry.nextHopProtocol)) return free;
    const { locks } = navigator as { locks?: LockManager };
    return locks ? shareOf(locks) : { turn, release: () => {} }; // plain HTTP from another computer has no locks
  },
};

/** Reports whether one connection carries all requests: HTTP/2 or newer. */
export const multiplexed = (protocol: string) => /^h[23]/.test(protocol);

/** Returns the first share that no tab has. The browser releases those of tabs that are closed. */
export async function shareOf(locks: Pick<LockManager, 'request'>): Promise<Share | null> {
  for (let i = 0; i < shares; i++) {
    const release = await hold(locks, `berth.stream.${i}`);
    if (release) return { turn: 0, release };
  }
  return null;
}

function hold(locks: Pick<LockManager, 'request'>, name: string): Promise<(() => void) | null> {
  return new Promise((resolve, reject) => {
    const held = locks.request(name, { ifAvailable: true }, (lock) => {
      if (lock) return new Promise<void>((release) => resolve(release));
      resolve(null);
    });
    Promise.resolve(held).catch(reject);
  });
}
