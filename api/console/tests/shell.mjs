import { execFileSync } from 'node:child_process';

/** Returns what a shell prints for a command.
 * @param {string} command @returns {string} */
export const shell = (command) => execFileSync('sh', ['-c', command], { encoding: 'utf8' });
