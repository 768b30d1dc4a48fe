// The state that the views of the console share: the stream of changes, and helpers that read lists and single things.
import { untrack } from 'svelte';
import type { Api } from './api';
import { explain } from './explain';
import { i18n } from './i18n.svelte';
import { Changes, type Change } from './ops';
import { session } from './session.svelte';
import type { Link } from './sse';

class Live {
  recent = $state.raw<Change[]>([]);
  link = $state<Link>('connecting');
  private stream: Changes | null = null;

  /** Follows the changes until the returned function is called. */
  open(api: Api): () => void {
    const stream = new Changes(api, (r) => (this.recent = r), (l) => (this.link = l), this.recent);
    this.stream = stream;
    void stream.run().catch((err) => session.noteRefusal(err));
    return () => {
      stream.close();
      this.stream = null;
    };
  }

  watch(types: string[], read: () => void): () => void {
    return this.stream?.watch(types, read) ?? (() => {});
  }
}

export const live = new Live();

/** How often a view reads again what changes without an event, such as loads and the lengths of queues. */
const every = 5000;

/** One thing that a view shows: read immediately, after changes of its types, and every few seconds while the page is visible. */
export class Reading<T> {
  value = $state.raw<T | null>(null);
  private error = $state.raw<unknown>(null);
  missing = $state(false);
  private wanted = 0;

  /** Call it while a component is created. key: what is read; another key is read again. */
  constructor(private load: () => Promise<T>, types: string[], key: () => unknown = () => 0, interval = every) {
    const current = $derived(key()); // the parts of an address change together, but not always each of them
    $effect(() => {
      void current;
      untrack(() => {
        this.value = null;
        void this.read();
      });
      const stop = live.watch(types, () => void this.read());
      const timer = setInterval(() => {
        if (!document.hidden) void this.read();
      }, interval);
      return () => {
        stop();
        clearInterval(timer);
        this.wanted++;
      };
    });
  }

  /** Why it could not be read the last time; empty if it was. */
  get problem(): string {
    return this.error === null ? '' : explain(this.error, i18n);
  }

  read = async () => {
    const mine = ++this.wanted;
    try {
      const value = await this.load();
      if (mine !== this.wanted) return;
      this.value = value;
      this.error = null;
      this.missing = false;
    } catch (err) {
      if (mine !== this.wanted || session.noteRefusal(err)) return;
      this.missing = (err as { status?: number }).status === 404;
      this.error = err;
    }
  };
}

/** A list of which one page is shown. It stays at the place that the user has chosen while it is read again. */
export class Pages<T> {
  cursors = $state.raw<string[]>(['']);
  next = $state('');
  rows: Reading<T[]>;

  constructor(load: (cursor: string) => Promise<{ rows: T[]; next: string }>, types: string[], key: () => unknown = () => 0, interval = every) {
    let last: unknown;
    this.rows = new Reading(async () => {
      const cursor = this.cursors.at(-1)!;
      const page = await load(cursor);
      if (cursor === this.cursors.at(-1)) this.next = page.next;
      return page.rows;
    }, types, () => {
      const now = JSON.stringify(key());
      if (last !== undefined && now !== last) untrack(() => (this.cursors = ['']));
      last = now;
      return now;
    }, interval);
  }

  get page() {
    return this.cursors.length;
  }

  forward = () => {
    if (!this.next) return;
    this.cursors = [...this.cursors, this.next];
    this.next = '';
    void this.rows.read();
  };

  back = () => {
    if (this.cursors.length === 1) return;
    this.cursors = this.cursors.slice(0, -1);
    void this.rows.read();
  };
}
