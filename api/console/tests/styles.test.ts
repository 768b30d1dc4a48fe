// Styles of one part of the page must not match elements of another one: the parts share a document, and the console contains the view of a task.
import { describe, expect, it } from 'vitest';

const components = import.meta.glob('../src/**/*.svelte', { query: '?raw', import: 'default', eager: true }) as Record<string, string>;
const sheets = import.meta.glob('../src/**/*.css', { query: '?raw', import: 'default', eager: true }) as Record<string, string>;

/** The parts of the page: their components are those that the roots import, and their styles are in one sheet. */
const parts: Record<string, { sheet: string; roots: string[] }> = {
  tasks: { sheet: 'views/task.css', roots: ['TaskView', 'NewTask', 'History', 'Credits', 'SignIn'].map((v) => `views/${v}.svelte`) },
  console: { sheet: 'console/console.css', roots: ['console/Console.svelte'] },
  meeting: { sheet: 'meeting/meeting.css', roots: ['meeting/MeetingPage.svelte'] },
};
/** Every part may use these, so that nothing else may be styled there by these names alone. */
const shared = ['style.css', 'parts/form.css'];
/** Elements of the console that contain the view of a task. */
const around = ['console', 'pane'];

const at = (name: string) => `../src/${name}`;

function imported(name: string): string[] {
  const directory = name.split('/').slice(0, -1);
  return [...components[at(name)].matchAll(/from '(\.[^']+\.svelte)'|import\('(\.[^']+\.svelte)'\)/g)].map(([, a, b]) => {
    const path = [...directory];
    for (const step of (a ?? b).split('/')) {
      if (step === '..') path.pop();
      else if (step !== '.') path.push(step);
    }
    return path.join('/');
  }).filter((name) => at(name) in components); // i18n.svelte.ts is imported by the same ending
}

function reached(roots: string[], not: string[]): Set<string> {
  const all = new Set<string>();
  const add = (name: string) => {
    if (all.has(name) || not.includes(name)) return;
    all.add(name);
    imported(name).forEach(add);
  };
  roots.forEach(add);
  return all;
}

/** The classes of a component's elements: all words of its class attributes, those of expressions included. */
function classesOf(source: string): string[] {
  const attributes = source.matchAll(/\bclass(?:="([^"]*)"|=\{([^}]*)\}|:([\w-]+))/g);
  return [...attributes].flatMap(([, text, expression, name]) => (text ?? expression ?? name).match(/[a-zA-Z][\w-]*/g) ?? []);
}

/** The selectors of a sheet, one by one. */
function selectorsOf(css: string): string[] {
  const plain = css.replace(/\/\*[\s\S]*?\*\//g, '').replace(/@(keyframes[^{]*|font-face\s*)\{(?:[^{}]|\{[^{}]*\})*\}/g, '');
  return [...plain.matchAll(/([^{}]+)\{/g)].map(([, s]) => s.trim()).filter((s) => s && !s.startsWith('@')).flatMap((s) => split(s));
}

/** Splits a list of selectors at the commas that are not in brackets. */
function split(list: string): string[] {
  const out = [''];
  let depth = 0;
  for (const c of list) {
    depth += c === '(' ? 1 : c === ')' ? -1 : 0;
    if (c === ',' && depth === 0) out.push('');
    else out[out.length - 1] += c;
  }
  return out.map((s) => s.trim());
}

/** The classes that a selector requires; those of :not() and of alternatives are none. */
const required = (selector: string) => [...selector.replace(/:(not|is|where|has)\([^()]*(\([^()]*\)[^()]*)*\)/g, '').matchAll(/\.([a-zA-Z][\w-]*)/g)].map((m) => m[1]);

const users = Object.fromEntries(Object.entries(parts).map(([name, p]) => [name, reached(p.roots, Object.entries(parts).flatMap(([n, o]) => (n === name ? [] : o.roots)))]));
const usedIn = (name: string) => new Set([...users[name]].flatMap((c) => classesOf(components[at(c)])));
const app = new Set(classesOf(components[at('App.svelte')]));

/** The selectors of a part's sheet that can match elements of another part. */
function leaks(name: string, css: string): string[] {
  const others = new Set([...app, ...Object.keys(parts).filter((p) => p !== name).flatMap((p) => [...usedIn(p)])]);
  const own = (c: string) => !others.has(c) && !around.includes(c);
  return selectorsOf(css).filter((s) => !required(s).some(own) && !s.includes(':not(.task *') && !around.some((a) => s === `.${a}`) && s !== '.pane > section');
}

describe.each(Object.entries(parts))('%s', (name, part) => {
  it('styles only its own elements', () => {
    expect(leaks(name, sheets[at(part.sheet)])).toEqual([]);
  });
});

it('finds a style that matches elements of another part', () => {
  expect(leaks('console', '.entries li { display: grid; } .lines li, .entries { margin: 0; }')).toEqual(['.entries li', '.entries']);
  expect(leaks('console', '@media (max-width: 1px) { p { margin: 0; } }')).toEqual(['p']);
});

it('has the styles of every part in its sheet', () => {
  expect(Object.keys(sheets).sort()).toEqual([...shared, ...Object.values(parts).map((p) => p.sheet)].map(at).sort());
  expect(Object.values(sheets).every((css) => selectorsOf(css).length > 10)).toBe(true);
});
