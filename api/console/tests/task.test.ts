import { expect, test } from 'vitest';
import { adopt, answerOf, apply, emptyRun, isDowngraded, isQueued, shortId, shownStatus, statusOf, type Run } from '../src/lib/task';

const plan = (template: string, ...names: string[]) =>
  adopt(emptyRun('t1'), { template, status: 'PENDING', stepIndex: 0, steps: names.map((name) => ({ name, model: `model-${name}` })) });

/** Makes frames numbered from 1 in one generation. */
function framesOf(events: [string, Record<string, unknown>?][], gen = 100) {
  return events.map(([event, data], i) => ({
    id: `${gen}-${i + 1}`, event, data: JSON.stringify({ taskId: 't1', serviceId: 's', stage: 'queue', ts: 1000 + i, ...data }),
  }));
}

const play = (run: Run, frames: ReturnType<typeof framesOf>) => frames.reduce(apply, run);

const point = (requirement: string, matched: boolean) => ({ kind: 'point', value: { requirement, matched } });

const chain: [string, Record<string, unknown>?][] = [
  ['queued', { stage: 'queue', position: 3, etaSeconds: 9 }],
  ['start', { stage: 'ocr', model: 'glm-4.1v-thinking-flash', queue: 'q_free_vision', tier: 'free' }],
  ['stage_progress', { stage: 'ocr', status: 'OCR_PENDING', message: 'reading' }],
  ['stage_progress', { stage: 'summary', status: 'SUMMARY_PENDING' }],
  ['stage_progress', { stage: 'queue', status: 'MATCH_PENDING' }],
  ['stage_progress', { stage: 'compare', items: [point('Go', true), point('Kafka', false)] }],
  ['token', { stage: 'deliver', text: 'The ' }],
  ['token_batch', { stage: 'deliver', text: 'match is ', count: 2 }],
  ['token_batch', { stage: 'deliver', text: 'good.', count: 2 }],
  ['done', { stage: 'deliver', text: 'The match is good.', usage: { inputTokens: 10, outputTokens: 5 } }],
];

test('the events of a chain update its steps in order', () => {
  const run = play(plan('job_match', 'ocr', 'summary', 'match'), framesOf(chain));
  expect(run.status).toBe('COMPLETED');
  expect(run.ended).toBe(true);
  expect(run.steps.map((s) => s.phase)).toEqual(['done', 'done', 'done']);
  expect(run.steps[0]).toMatchObject({ model: 'glm-4.1v-thinking-flash', queue: 'q_free_vision', startedAt: 1000, endedAt: 1003 });
  expect(run.steps[2]).toMatchObject({ startedAt: 1004, endedAt: 1009 });
  expect(answerOf(run)).toBe('The match is good.');
  expect(run.items).toHaveLength(2);
  expect(run.usage).toEqual({ inputTokens: 10, outputTokens: 5 });
});

test('a queued step shows its position until it starts', () => {
  const frames = framesOf(chain);
  let run = apply(plan('job_match', 'ocr', 'summary', 'match'), frames[0]);
  expect(run.steps[0]).toMatchObject({ phase: 'queued', position: 3, etaSeconds: 9 });
  expect(isQueued(run)).toBe(true);
  run = apply(run, frames[1]);
  expect(run.steps[0]).toMatchObject({ phase: 'running' });
  expect(isQueued(run)).toBe(false);
});

test('a task that waits is shown so, from the row and from the notice that a step is next', () => {
  const row = { template: 'job_summary', status: 'ANSWER_PENDING', steps: [{ name: 'answer' }], waiting: { position: 0, paused: true } };
  const waits = adopt(emptyRun('t1'), row);
  expect(waits.steps[0]).toMatchObject({ phase: 'queued', position: 0, etaSeconds: -1, paused: true });
  expect(isQueued(adopt(emptyRun('t1'), { ...row, waiting: undefined }))).toBe(false);
  const next = apply(emptyRun('t1'), { id: '1-1', event: 'stage_progress', data: JSON.stringify({ stage: 'queue', status: 'ANSWER_PENDING' }) });
  expect(next.steps[0]).toMatchObject({ phase: 'queued', position: -1 });
  const runs = apply(waits, { id: '1-1', event: 'start', data: JSON.stringify({ stage: 'answer' }) });
  expect(adopt(runs, row).steps[0].phase).toBe('running');
  expect(shownStatus({ status: 'ANSWER_PENDING', waiting: { paused: true } })).toBe('PAUSED');
  expect(shownStatus({ status: 'ANSWER_PENDING', waiting: {} })).toBe('QUEUED');
  expect(shownStatus({ status: 'ANSWER_PENDING' })).toBe('ANSWER_PENDING');
  expect(shownStatus({ status: 'FAILED', waiting: {} })).toBe('FAILED');
});

// FM2
test('text that was a thought of the model is discarded, and the step continues', () => {
  const run = play(plan('interview_prep', 'answer'), framesOf([
    ['start', { stage: 'answer', model: 'm', queue: 'q_free_stream' }], ['token_batch', { stage: 'answer', text: 'a draft', count: 2 }],
    ['reset', { stage: 'answer', status: 'STREAMING', message: 'that was a thought' }], ['token_batch', { stage: 'answer', text: 'The answer.', count: 2 }],
  ]));
  expect(answerOf(run)).toBe('The answer.');
  expect(run.notices).toEqual([]);
  expect(run.steps[0].phase).toBe('running');
});

// FM5
test('a prompt that the provider truncated marks the task, by its end or when it is read', () => {
  expect(play(plan('interview_prep', 'answer'), framesOf([['done', { text: 'x', promptTruncated: true }]])).promptTruncated).toBe(true);
  expect(adopt(emptyRun('t1'), { status: 'COMPLETED', steps: [], promptTruncated: true }).promptTruncated).toBe(true);
  expect(play(plan('interview_prep', 'answer'), framesOf([['done', { text: 'x' }]])).promptTruncated).toBe(false);
});

test('a task in a list is incomplete if its answer was truncated, and only once it is completed', () => {
  expect(shownStatus({ status: 'COMPLETED', finishReason: 'length' })).toBe('TRUNCATED');
  expect(shownStatus({ status: 'COMPLETED', finishReason: 'stop' })).toBe('COMPLETED');
  for (const status of ['MATCH_PENDING', 'FAILED', 'CANCELLED']) expect(shownStatus({ status, finishReason: 'length' })).toBe(status);
});

test('a long id is shown by its two ends', () => {
  expect(shortId('0b9c1d2e-1111-4222-8333-444455556666')).toBe('0b9c1d…556666');
  expect(shortId('order-2026-00042')).toBe('order-2026-00042');
});

test('the position and estimate move with events that have no id, and the resume position stays', () => {
  const frames = framesOf(chain);
  let run = apply(plan('job_match', 'ocr', 'summary', 'match'), frames[0]);
  for (const [position, etaSeconds] of [[2, 6], [1, 3]]) {
    run = apply(run, { id: '', event: 'queued', data: JSON.stringify({ stage: 'queue', position, etaSeconds }) });
    expect(run.steps[0]).toMatchObject({ phase: 'queued', position, etaSeconds });
    expect(run.lastId).toBe('100-1');
  }
  expect(apply(run, frames[1]).steps[0].phase).toBe('running');
});

test('a task of the free tier is marked as downgraded, from the row and from its events', () => {
  expect(isDowngraded(plan('job_match', 'match'))).toBe(false);
  expect(isDowngraded(adopt(emptyRun('t1'), { template: 'job_match', status: 'PENDING', tier: 'free', steps: [] }))).toBe(true);
  const frames = framesOf(chain);
  expect(isDowngraded(play(plan('job_match', 'ocr', 'summary', 'match'), frames.slice(0, 2)))).toBe(true);
  expect(isDowngraded(adopt(emptyRun('t1'), { template: 'job_match', status: 'PENDING', tier: 'paid', steps: [] }))).toBe(false);
});

test('resuming at any event with replayed events gives the same text', () => {
  const frames = framesOf(chain);
  const whole = play(plan('job_match', 'ocr', 'summary', 'match'), frames);
  for (let cut = 0; cut <= frames.length; cut++) {
    for (let back = 0; back <= cut; back++) {
      const first = play(plan('job_match', 'ocr', 'summary', 'match'), frames.slice(0, cut));
      const again = play(first, frames.slice(cut - back));
      expect(again).toEqual(whole);
    }
  }
});

test('a page reloaded in mid-stream assigns replayed events to their steps', () => {
  const fresh = adopt(emptyRun('t1'), {
    template: 'job_match', status: 'STREAMING', stepIndex: 2,
    steps: [{ name: 'ocr' }, { name: 'summary' }, { name: 'match' }],
  });
  expect(fresh.steps.map((s) => s.phase)).toEqual(['done', 'done', 'waiting']);
  const frames = framesOf([
    ['queued', { stage: 'queue', position: 1 }],
    ['token', { stage: 'ocr', text: 'TEXT OF PICTURE' }],
    ['token', { stage: 'summary', text: 'a summary' }],
    ['token', { stage: 'deliver', text: 'an answer' }],
  ]);
  let run = apply(fresh, frames[0]);
  expect(run.steps.map((s) => s.phase)).toEqual(['done', 'done', 'waiting']);
  run = play(run, frames.slice(1));
  expect(run.steps.map((s) => s.text)).toEqual(['TEXT OF PICTURE', 'a summary', 'an answer']);
  expect(run.current).toBe(2);
});

test('reset clears the text of the lost attempt, and new items replace its items', () => {
  let run = play(plan('job_match', 'summary', 'match'), framesOf([
    ['stage_progress', { stage: 'compare', items: [point('Go', true), point('old', false)] }],
    ['token', { stage: 'deliver', text: 'half an ans' }],
    ['reset', { stage: 'deliver', message: 'the worker was lost' }],
  ]));
  expect(answerOf(run)).toBe('');
  expect(run.items).toHaveLength(2);
  expect(run.notices).toEqual([{ kind: 'reset', message: 'the worker was lost' }]);
  run = play({ ...run, lastId: '' }, framesOf([
    ['stage_progress', { stage: 'compare', items: [point('Go', true)] }],
    ['token_batch', { stage: 'deliver', text: 'whole', count: 1 }],
  ]));
  expect(run.items).toEqual([point('Go', true)]);
  expect(answerOf(run)).toBe('whole');
});

test('a step that waits again after a reset shows its position and pause, also on a reloaded page', () => {
  const row = {
    template: 'interview_prep', status: 'STREAMING', stepIndex: 0, steps: [{ name: 'interview' }], waiting: { position: 0, paused: true },
  };
  const frames = framesOf([
    ['queued', { position: 2, paused: true }],
    ['start', { stage: 'answer' }],
    ['stage_progress', { stage: 'answer', status: 'STREAMING', message: 'writing' }],
    ['token', { stage: 'answer', text: 'half' }],
    ['reset', { stage: 'answer', status: 'ANSWER_PENDING' }],
  ]);
  const place = { id: '', event: 'queued', data: JSON.stringify({ stage: 'queue', status: 'ANSWER_PENDING', position: 0, paused: true }) };
  for (const page of [adopt(emptyRun('t1'), { ...row, waiting: undefined }), adopt(emptyRun('t1'), row)]) {
    let run = play(page, frames);
    expect(run.steps[0]).toMatchObject({ phase: 'queued', position: -1, paused: false });
    run = apply(run, place);
    expect(run.steps[0]).toMatchObject({ phase: 'queued', position: 0, paused: true });
    expect(statusOf(run)).toBe('PAUSED');
    run = apply(run, { id: '100-6', event: 'stage_progress', data: frames[2].data });
    expect(statusOf(run)).toBe('THINKING');
  }
});

test('an answer is being written from its first words or items on; until then the model thinks', () => {
  const frames = framesOf([
    ['start', { stage: 'answer' }],
    ['stage_progress', { stage: 'answer', status: 'STREAMING', message: 'writing' }],
    ['stage_progress', { stage: 'answer', message: 'the model is thinking' }],
    ['token', { stage: 'answer', text: 'The ' }],
  ]);
  let run = play(plan('interview_prep', 'interview'), frames.slice(0, 2));
  expect(statusOf(run)).toBe('THINKING');
  expect(run.steps[0].message).toBe('');
  run = apply(run, frames[2]);
  expect(statusOf(run)).toBe('THINKING');
  expect(run.steps[0].message).toBe('the model is thinking');
  run = apply(run, frames[3]);
  expect(statusOf(run)).toBe('STREAMING');
  expect(run.steps[0].message).toBe('');
  const match = play(plan('job_match', 'summary', 'match'), framesOf([
    ['stage_progress', { stage: 'ingest', status: 'STREAMING', message: 'reading the posting' }],
    ['stage_progress', { stage: 'compare', items: [point('Go', true)] }],
  ]));
  expect(statusOf(match)).toBe('STREAMING');
  const failed = apply(match, { id: '', event: 'stage_progress', data: '{"stage":"ingest","code":"provider_unavailable","message":"retrying"}' });
  expect(statusOf(failed)).toBe('RETRYING');
  expect(statusOf(apply(failed, { id: '', event: 'reset', data: '{"stage":"ingest"}' }))).toBe('QUEUED');
});

test('items of every kind are added, and one that is sent again is shown once', () => {
  const run = play(plan('job_match', 'match'), framesOf([
    ['stage_progress', { stage: 'compare', items: [point('Go', false)] }],
    ['stage_progress', { stage: 'compare', items: [{ kind: 'anything', value: ['x', null, 1] }, point('Go', false)] }],
    ['stage_progress', { stage: 'compare', items: [point('Go', true)] }],
    ['stage_progress', { stage: 'compare', items: ['no item', { kind: '' }, null] }],
  ]));
  expect(run.items).toEqual([point('Go', false), { kind: 'anything', value: ['x', null, 1] }, point('Go', true)]);
});

test('the steps of any template are found by their statuses and names', () => {
  const statuses: Record<string, string> = { one: 'LOOKING', two: 'TWO_PENDING', three: 'TWO_PENDING' };
  const row = { status: 'PENDING', stepIndex: 0, steps: Object.entries(statuses).map(([name, status]) => ({ name, status, label: { en: name } })) };
  const fresh = adopt(emptyRun('t1'), row);
  expect(adopt(fresh, { ...row, steps: Object.keys(statuses).map((name) => ({ name })) }).steps).toEqual(fresh.steps); // a response with less
  const reached = (...events: [string, Record<string, unknown>?][]) => {
    const run = play(fresh, framesOf(events));
    return [run.seen, run.status, run.steps.map((s) => s.text)];
  };
  expect(reached(['stage_progress', { status: 'LOOKING' }])).toEqual([0, 'LOOKING', ['', '', '']]);
  expect(reached(['stage_progress', { status: 'TWO_PENDING' }])).toEqual([1, 'TWO_PENDING', ['', '', '']]);
  // A step in the middle streams, too; the stages of the last one may have the name of an earlier step.
  expect(reached(
    ['stage_progress', { stage: 'one', status: 'STREAMING' }], ['token', { stage: 'one', text: 'a' }], ['queued', { stage: 'queue', status: 'TWO_PENDING' }],
    ['token', { stage: 'two', text: 'b' }], ['token', { stage: 'anything', text: 'c' }], ['token', { stage: 'one', text: 'd' }],
  )).toEqual([2, 'STREAMING', ['a', 'b', 'cd']]);
});

test('gap is shown, keeps the resume position, and is cleared by the whole text', () => {
  let run = play(plan('interview_prep', 'interview'), framesOf([['token', { stage: 'answer', text: 'a' }]]));
  run = apply(run, { id: '100-40', event: 'gap', data: '{"type":"gap"}' });
  expect(run.notices.map((n) => n.kind)).toEqual(['gap']);
  expect(run.lastId).toBe('100-40');
  run = apply(run, { id: '100-41', event: 'token', data: '{"stage":"answer","text":"z"}' });
  expect(answerOf(run)).toBe('az');
  run = apply(run, { id: '100-42', event: 'done', data: '{"stage":"answer","text":"a…z"}' });
  expect(answerOf(run)).toBe('a…z');
  expect(run.notices).toEqual([]);
});

test('a re-created stream is replayed from its start', () => {
  let run = play(plan('interview_prep', 'interview'), framesOf([
    ['token', { stage: 'answer', text: 'one ' }], ['token', { stage: 'answer', text: 'two ' }],
  ]));
  run = apply(run, { id: '200-0', event: 'gap', data: '{}' });
  expect(run.notices).toEqual([]);
  run = play(run, framesOf([
    ['reset', { stage: 'answer' }], ['token_batch', { stage: 'answer', text: 'one two ', count: 2 }],
    ['token', { stage: 'answer', text: 'three' }],
  ], 200));
  expect(answerOf(run)).toBe('one two three');
});

test('events after the terminal event are ignored', () => {
  const run = play(plan('interview_prep', 'interview'), framesOf([
    ['token', { stage: 'answer', text: 'x' }],
    ['error', { stage: 'answer', code: 'provider_key', message: 'the provider refused our key' }],
    ['token', { stage: 'answer', text: 'late' }],
    ['done', { stage: 'answer', text: 'late' }],
  ]));
  expect(run.status).toBe('FAILED');
  expect(run.error).toEqual({ code: 'provider_key', message: 'the provider refused our key' });
  expect(answerOf(run)).toBe('x');
  expect(run.lastId).toBe('100-2');
});

test('a cancelled task is not shown as failed', () => {
  const run = play(plan('job_match', 'summary', 'match'), framesOf([
    ['stage_progress', { stage: 'summary', status: 'SUMMARY_PENDING' }], ['error', { stage: 'summary', code: 'cancelled' }],
  ]));
  expect(run.status).toBe('CANCELLED');
  expect(run.steps.map((s) => s.phase)).toEqual(['cancelled', 'stopped']);
});

test('the step of a cancelled task that is opened later was cancelled, not left out', () => {
  const row = { template: 'job_match', status: 'CANCELLED', stepIndex: 1, steps: [{ name: 'summary' }, { name: 'match' }] };
  expect(adopt(emptyRun('t1'), row).steps.map((s) => s.phase)).toEqual(['done', 'cancelled']);
});

test('a result without a text is JSON of any form', () => {
  for (const result of [{ headline: 'h' }, { items: [{ kind: 'no item', value: 1 }] }, ['a'], 'text', 0, false]) {
    expect(play(plan('any', 'summary'), framesOf([['done', { stage: 'answer', result }]])).result).toEqual(result);
    const read = adopt(plan('any', 'summary'), { status: 'COMPLETED', result });
    expect([read.result, read.items]).toEqual([result, []]);
  }
});

test('malformed and unknown events advance the position and change nothing else', () => {
  const run = plan('interview_prep', 'interview');
  const next = apply(apply(run, { id: '100-1', event: 'token', data: '{"text": ' }), { id: '100-2', event: 'weather', data: '{}' });
  expect(next).toEqual({ ...run, lastId: '100-2' });
});

test('a polled status only moves forward and ends the run', () => {
  let run = plan('job_match', 'summary', 'match');
  run = adopt(run, { status: 'MATCH_PENDING', stepIndex: 1 });
  run = adopt(run, { status: 'SUMMARY_PENDING', stepIndex: 0 });
  expect(run.status).toBe('MATCH_PENDING');
  expect(run.current).toBe(1);
  run = adopt(run, { status: 'COMPLETED', text: 'the answer', endedAt: '2025-01-01T00:00:05Z', links: { temporal: 'javascript:alert(1)' } });
  expect(run.ended).toBe(true);
  expect(answerOf(run)).toBe('the answer');
  expect(run.steps.every((s) => s.phase === 'done')).toBe(true);
  expect(run.temporalUrl).toBe('');
});

test('the items of an answer arrive with its text, from the row and from the last event', () => {
  const result = { items: [point('Go', true)] };
  for (const run of [
    adopt(plan('job_match', 'summary', 'match'), { status: 'COMPLETED', text: '## Hello', result }),
    play(plan('job_match', 'summary', 'match'), framesOf([['done', { stage: 'deliver', text: '## Hello', result }]])),
  ]) {
    expect(answerOf(run)).toBe('## Hello');
    expect(run.items).toEqual(result.items);
    expect(run.result).toBeUndefined();
  }
});

test('reducers do not modify their argument', () => {
  const freeze = <T,>(v: T): T => {
    if (v && typeof v === 'object') Object.values(Object.freeze(v)).forEach(freeze);
    return v;
  };
  let run = freeze(plan('job_match', 'ocr', 'summary', 'match'));
  for (const f of framesOf(chain)) run = freeze(apply(run, f));
  freeze(adopt(run, { status: 'COMPLETED', stepIndex: 2, text: 'x', usage: { inputTokens: 1, outputTokens: 1 } }));
});

test('a task whose texts were erased is marked, and keeps its status', () => {
  const row = { template: 'job_match', status: 'COMPLETED', steps: [{ name: 'match' }], stepIndex: 0 };
  expect(adopt(emptyRun('t1'), row).erased).toBe(false);
  const run = adopt(emptyRun('t1'), { ...row, contentErased: true });
  expect(run).toMatchObject({ erased: true, status: 'COMPLETED' });
  expect(answerOf(run)).toBe('');
});

const response = [
  '{"type":"response.created","sequence_number":0,"response":{}}',
  '{"type":"response.output_text.delta","sequence_number":1,"delta":"The "}',
  '{"type":"response.output_text.delta","sequence_number":2,"delta":"answer."}',
  '{"type":"response.output_item.done","sequence_number":3,"item":{"type":"function_call","name":"f","arguments":"{}"}}',
  '{"type":"response.completed","sequence_number":4,"response":{}}',
];
const chat = ['{"choices":[{"index":0,"delta":{"content":"The "}}]}', '{"choices":[{"index":1,"delta":{"content":"No."}},{"index":0,"delta":{"content":"answer."}}]}', '{"choices":[],"usage":{}}'];

test.each([
  ['openai/responses', response, 'The answer.\n\n`f({})`\n\n'],
  ['openai/chat', chat, 'The answer.'],
  ['job_summary', ['{"type":"response.output_text.delta","delta":"x"}'], '{"type":"response.output_text.delta","delta":"x"}\n'],
])('the text of %s is what the model has written, while it comes and when it is kept', (template, lines, text) => {
  const begun = plan(template, 'answer');
  const live = play(begun, framesOf(lines.map((line) => ['token', { stage: 'answer', text: `${line}\n` }])));
  expect(answerOf(live)).toBe(text);
  const log = lines.map((line) => `${line}\n`).join('');
  expect(answerOf(adopt(emptyRun('t1'), { template, status: 'COMPLETED', steps: [{ name: 'answer' }], text: log }))).toBe(text);
  expect(answerOf(adopt(live, { template, status: 'COMPLETED', steps: [{ name: 'answer' }], text: log }))).toBe(text);
});
