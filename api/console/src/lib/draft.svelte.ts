// The form of a new task as its user left it. It outlasts an expired session, other views, and a reload of the tab.
import { own } from './home';
import { emptyValue, isFilled, type Value } from './form';

const kept = own('berth.draft');

class Draft {
  template = $state('');
  serviceId = $state('console');
  /** The chosen language of the answer; empty for that of the page. */
  locale = $state('');
  values = $state<Record<string, Value>>({});
  /** The chosen field of each group that is a choice. */
  chosen = $state<Record<string, string>>({});
  private owner = '';

  constructor() {
    this.restore();
    addEventListener('pagehide', () => this.store());
  }

  /** Continues the draft of a user. That of another one is discarded. */
  begin(userId: string) {
    if (this.owner !== userId) this.clear();
    this.owner = userId;
  }

  /** Whether something was entered. */
  get filled() {
    return Object.values(this.values).some(isFilled);
  }

  /** Replaces what was entered by a submission. */
  fill(template: string, serviceId: string, locale: string, values: Record<string, Value>) {
    this.clear();
    Object.assign(this, { template, serviceId, locale });
    Object.assign(this.values, values);
  }

  /** Discards what was entered; the fields remain. */
  clear() {
    for (const key of Object.keys(this.values)) this.values[key] = emptyValue();
    this.serviceId = 'console';
    this.chosen = {};
    sessionStorage.removeItem(kept);
  }

  private store() {
    if (!this.filled) return sessionStorage.removeItem(kept);
    const { owner, template, serviceId, locale, values, chosen } = this;
    const text = JSON.stringify({ owner, template, serviceId, locale, values, chosen }, (_, v: unknown) => (v instanceof File ? undefined : v));
    try {
      sessionStorage.setItem(kept, text);
    } catch {
      // It exceeds what the browser stores: only this page has it.
    }
  }

  private restore() {
    try {
      const doc = JSON.parse(sessionStorage.getItem(kept) ?? '');
      this.owner = String(doc.owner);
      this.template = String(doc.template);
      this.serviceId = String(doc.serviceId);
      this.locale = String(doc.locale);
      this.chosen = doc.chosen ?? {};
      for (const [key, v] of Object.entries(doc.values as Record<string, Value>)) {
        this.values[key] = { text: v.text, upload: v.upload?.assetId ? v.upload : null, refused: v.refused };
      }
    } catch {
      // There is no draft.
    }
  }
}

export const draft = new Draft();
