// A task as it was submitted, in the forms in which it is submitted again.
import { fieldAt, fieldsOf, type Value } from './form';
import type { SubmitBody, TaskView, Template } from './openapi';

/** submissionOf returns the submission of the same task, without an id. */
export const submissionOf = ({ template, serviceId, locale, variables }: TaskView): SubmitBody =>
  ({ template, serviceId, locale, variables });

/** isWhole reports whether all of the input is kept, so that the task can be submitted again as it is. */
export const isWhole = (task: TaskView) => (task.inputs ?? []).every((i) => !i.erased);

/** isGone reports whether nothing of the input is kept. */
export const isGone = (task: TaskView) => (task.inputs ?? []).every((i) => i.erased);

/** curlOf returns the command that submits the task again. Each run of it is a new task. */
export const curlOf = (task: TaskView, url: string) =>
  `curl -H "Authorization: Bearer $BERTH_TOKEN" -H "Idempotency-Key: again-$(date +%s)" ${quoted(url)} --json ${quoted(jsonOf(task))}`;

export const jsonOf = (task: TaskView) => JSON.stringify(submissionOf(task), null, 2);

/** quoted returns a text as one word of a shell. */
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/**
 * valuesOf returns the content of a template's form as it was when the task was submitted. Files stay what the server has stored; text
 * reads a stored text. What was erased, or what the template has not any more, is left out.
 */
export async function valuesOf(task: TaskView, template: Template, text: (assetId: string) => Promise<string>): Promise<Record<string, Value>> {
  const keys = fieldsOf(template).map((f) => f.key);
  const values: Record<string, Value> = {};
  for (const i of task.inputs ?? []) {
    const key = fieldAt(template, i.variable);
    if (i.erased || !keys.includes(key)) continue;
    const image = i.kind === 'image_asset';
    values[key] = image || i.name
      ? { text: '', upload: { name: i.name ?? '', kind: image ? 'image' : 'document', assetId: i.assetId } }
      : { text: await text(i.assetId), upload: null };
  }
  return values;
}
