// Calls of OpenAI's protocol are tasks, too. What they publish and store are events or chunks of the protocol, each on a line.

/** Whose titles are texts of the page: they have no template. */
export const forwarded = ['openai/responses', 'openai/chat'];

type Line = {
  type?: string; delta?: string; item?: { type?: string; name?: string; arguments?: string };
  choices?: { index?: number; delta?: { content?: string | null } }[];
};

/** writtenIn returns what the model has written in whole lines of a call; other texts as they are. */
export function writtenIn(template: string, text: string): string {
  if (!forwarded.includes(template)) return text;
  return text.split('\n').map((line) => {
    try {
      return writtenBy((JSON.parse(line) ?? {}) as Line);
    } catch {
      return ''; // empty, or not all of it was kept
    }
  }).join('');
}

function writtenBy(line: Line): string {
  switch (line.type) {
    case undefined:
      return line.choices?.find((c) => c.index === 0)?.delta?.content ?? '';
    case 'response.output_text.delta':
    case 'response.refusal.delta':
      return line.delta ?? '';
    case 'response.output_item.done':
      return line.item?.type === 'function_call' ? `\n\n\`${line.item.name}(${line.item.arguments})\`\n\n` : '';
    default:
      return '';
  }
}
