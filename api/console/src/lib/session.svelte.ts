// The signed-in user and the current view. A token in the address is stored and immediately removed from the address.
import { Api, Problem, signedOut, type Me } from './api';
import { place as consolePlace } from './ops';

const kept = 'berth.token';

class Session {
  api = $state.raw<Api | null>(null);
  me = $state.raw<Me | null>(null);
  /** Why no user is signed in: the token was rejected or the server is unreachable. */
  trouble = $state<'' | 'wrong' | 'unreachable'>('');
  checking = $state(false);

  /** Reads the token from `#token=…` or from the last visit. */
  async begin() {
    const m = /^#token=([^&]+)/.exec(location.hash);
    if (m) history.replaceState(null, '', location.pathname + location.search + '#/');
    const token = m ? decodeURIComponent(m[1]) : localStorage.getItem(kept);
    if (token) await this.signIn(token);
  }

  async signIn(token: string) {
    const api = new Api(token.trim().replace(/^Bearer\s+/i, ''));
    this.api = null;
    this.me = null;
    this.checking = true;
    this.trouble = '';
    try {
      this.me = await api.me();
      this.api = api;
      localStorage.setItem(kept, api.token);
    } catch (err) {
      if (err instanceof Problem && (err.status === 0 || err.status >= 500)) {
        this.trouble = 'unreachable';
        localStorage.setItem(kept, api.token); // it may be valid: a reload tries it again
      } else {
        this.trouble = 'wrong';
        localStorage.removeItem(kept);
      }
    } finally {
      this.checking = false;
    }
  }

  /** Reads the balance again, which a task may have changed. A failed call keeps the last one. */
  async refresh() {
    const api = this.api;
    const me = await api?.me().catch((err) => void this.noteRefusal(err));
    if (me && this.api === api) this.me = me;
  }

  get operator(): boolean {
    return this.me?.scopes.includes('operator') ?? false;
  }

  /** Whether the token permits tasks of its own: that of an operator may not. */
  get user(): boolean {
    return this.me?.scopes.includes('user') ?? false;
  }

  /** Handles the error of any failed call: a rejected token ends the session. */
  noteRefusal(err: unknown): boolean {
    if (!signedOut(err)) return false;
    this.signOut();
    this.trouble = 'wrong';
    return true;
  }

  signOut() {
    localStorage.removeItem(kept);
    this.api = null;
    this.me = null;
    this.trouble = '';
  }
}

export const session = new Session();

export type Place =
  | { at: 'new' } | { at: 'history' } | { at: 'task'; id: string } | { at: 'console'; parts: string[]; filters: Record<string, string> };

const read = (): Place => {
  const m = /^#\/tasks\/([^/?#]+)$/.exec(location.hash);
  if (m) return { at: 'task', id: decodeURIComponent(m[1]) };
  const view = consolePlace(location.hash);
  if (view) return { at: 'console', ...view };
  return location.hash === '#/tasks' ? { at: 'history' } : { at: 'new' };
};

class Route {
  place = $state.raw<Place>(read());

  constructor() {
    addEventListener('hashchange', () => {
      if (location.hash.startsWith('#token=')) void session.begin(); // which replaces the address
      const before = this.place;
      this.place = read();
      const filtered = before.at === 'console' && this.place.at === 'console' && before.parts.join() === this.place.parts.join();
      if (!filtered) scrollTo(0, 0);
    });
  }

  toTask(id: string) {
    location.hash = `#/tasks/${encodeURIComponent(id)}`;
  }
}

export const route = new Route();
