// The templates as the API lists them, for all views: the texts of forms, tasks and lists are theirs.
import type { Api } from './api';
import { i18n } from './i18n.svelte';
import type { Template } from './openapi';
import { said, variableOf, type Labels, type Said } from './template';

/** A step of a task, as far as its texts need it. */
interface TaskStep { name: string; status: string; label?: Labels }

class Templates {
  list = $state.raw<Template[]>([]);
  private byName = $derived(new Map(this.list.map((t) => [t.name, t])));
  private reading: Promise<void> | null = null;
  private known = false;

  /** Reads the list again. Calls at the same time are one. */
  read(api: Api): Promise<void> {
    return (this.reading ??= api.templates().then((list) => {
      this.list = list;
      this.known = true;
    }).finally(() => (this.reading = null)));
  }

  /** Reads the list unless it was read before. It waits a moment only, and does not fail: views show names in place of titles then. */
  async soon(api: Api): Promise<void> {
    if (this.known) return;
    await Promise.race([this.read(api).catch(() => {}), new Promise((r) => setTimeout(r, 2000))]);
  }

  find(name: string): Template | undefined {
    return this.byName.get(name);
  }

  /** The name for users of what belongs to a template; that which only repeats the id is made readable. */
  say(t: Template | undefined, labels: Labels | undefined, id = ''): Said {
    const found = said(labels, i18n.lang, t?.locales);
    return found.text && found.text !== id ? found : { text: i18n.label(id), lang: '' };
  }

  /** The title of a template, or of a call of OpenAI's protocol; a template that is not offered any more has only its name. */
  title(name: string): Said {
    const t = this.find(name);
    return t ? this.say(t, t.title, name) : { text: i18n.maybe(`of_${name}`, name), lang: '' };
  }

  /** The label of a step: that of the task's version if the task has it, else of the active one, which may have other steps. */
  step(template: string, step: TaskStep): Said {
    const t = this.find(template);
    return this.say(t, step.label ?? t?.steps.find((s) => s.id === step.name)?.label, step.name);
  }

  variable(template: string, name: string): Said {
    const t = this.find(template);
    return this.say(t, variableOf(t, name)?.label, name);
  }

  /** The word for what a task does: that of all tasks, or the label of the step which has the status. */
  status(task: { template: string; steps: readonly TaskStep[] }, status: string): string {
    const word = i18n.maybe(`s_${status}`, '');
    if (word) return word;
    const step = task.steps.find((s) => s.status === status);
    return step ? this.step(task.template, step).text : i18n.label(status.replace(/_PENDING$/, ''));
  }

  /** All templates by their titles. */
  get sorted(): Template[] {
    return this.inOrder(this.list);
  }

  inOrder(list: readonly Template[]): Template[] {
    const compare = new Intl.Collator(i18n.lang, { numeric: true }).compare;
    return list.map((t) => ({ t, title: this.say(t, t.title, t.name).text })).sort((a, b) => compare(a.title, b.title)).map((x) => x.t);
  }

  /** What a search for templates reads. */
  words = (t: Template) => [t.name, ...Object.values(t.title), ...Object.values(t.description ?? {})].join(' ');
}

export const templates = new Templates();
