import { expect, test } from 'vitest';
import { lastProblem, webhookForm, webhookSpec, webhookState } from '../src/lib/webhooks';

test('the fields of a webhook are its settings again', () => {
  const hook = { url: 'https://h.test', title: 'Nightly', events: ['task.failed', 'task.completed'] as const, disabledAt: '2026-11-28T10:00:00Z', teamId: 'search' };
  const form = webhookForm({ ...hook, events: [...hook.events] });
  expect(webhookSpec(form, { webhookId: 'wh_1' })).toEqual({ url: hook.url, title: hook.title, events: [...hook.events], disabled: true });
});

test('a new webhook has only the owner that was named', () => {
  const form = { ...webhookForm(null, 'search'), url: ' https://h.test ', events: 'task.failed\n\ntask.failed, task.completed' };
  expect(webhookSpec(form, null)).toEqual({ url: 'https://h.test', title: '', events: ['task.failed', 'task.completed'], disabled: false, teamId: 'search' });
});

test('states and problems', () => {
  expect(webhookState({})).toBe('hook_enabled');
  expect(webhookState({ disabledAt: '2026-11-28T10:00:00Z' })).toBe('hook_disabled');
  expect(lastProblem({ log: [] })).toBe('');
  expect(lastProblem({ log: [{ at: '', tookMs: 1, error: 'a' }, { at: '', tookMs: 1, error: 'b' }] })).toBe('b');
  expect(lastProblem({ log: [{ at: '', tookMs: 1, error: 'a' }, { at: '', tookMs: 1, status: 200 }] })).toBe('');
});
