// Frames of the program, apart from those of libraries that wait on its behalf.
import type { Frame, Stack } from '../messages';
import { baseName } from '../text/wording';

// As daemon/analyze/waits/wait_function.cc has them.
const LIBRARY_MODULE =
  /^(libc[.-]|libpthread|libstdc\+\+|libgcc|ld-|ld\.|libm[.-]|libdl|librt|\[vdso\]|libstackd_agent|musl)/;
const LIBRARY_SCOPE =
  /^<?&?_*(std::|gthread_|gnu_cxx::|core::|alloc::|rust_|parking_lot::|lock_api::|parking_lot_core::|runtime\.|absl::)/;
const OF_RUNTIME = new Set(['RUNTIME', 'RUNTIME_UNPLACED']);
// Functions, or files, of a language's own library.
const OWN_LIBRARY: Record<string, RegExp> = {
  GO: /^(runtime|internal|sync|syscall|time|net|os|io)[./]/,
  JAVA: /^(java|javax|jdk|sun)\./,
};
const OWN_FILES: Record<string, RegExp> = {
  PYTHON: /\/lib\/python3[^/]*\/(asyncio|concurrent|queue|selectors|socket|ssl|subprocess|threading)\b/,
  JAVASCRIPT: /^node:/,
};

function isOfOwnLibrary(frame: Frame): boolean {
  const { language = '', function: name = '', file = '' } = frame;
  return (OWN_LIBRARY[language]?.test(name) ?? false) || (OWN_FILES[language]?.test(file) ?? false);
}

export function isProgramFrame(frame: Frame): boolean {
  if (isOfOwnLibrary(frame)) return false;
  if (OF_RUNTIME.has(frame.origin ?? '')) return true;
  if (!frame.function || frame.replaced) return false;
  return !LIBRARY_MODULE.test(frame.module ?? '') && !LIBRARY_SCOPE.test(frame.function);
}

// The innermost frame of the program: where the thread is, as its owner would say.
export function programFrame(stack: Stack | undefined): Frame | undefined {
  return stack?.frames?.find(isProgramFrame) ?? stack?.frames?.find((frame) => frame.function);
}

export function placeOfFrame(frame: Frame): string {
  if (!frame.file) return '';
  return frame.line ? `${baseName(frame.file)}:${frame.line}` : baseName(frame.file);
}

export function nameOfFrame(frame: Frame): string {
  if (frame.function) return frame.function;
  return frame.moduleOffset ? `${frame.module ?? ''}+${frame.moduleOffset}` : (frame.address ?? 'unknown');
}

export function frameInWords(frame: Frame): string {
  const place = placeOfFrame(frame);
  return place === '' ? nameOfFrame(frame) : `${nameOfFrame(frame)} at ${place}`;
}

// The name of a function without its parameters; longer ones are not looked at behind this many characters.
const MAX_PLAIN = 2000;
export function plainName(name: string): string {
  let depth = 0;
  for (let i = 0; i < Math.min(name.length, MAX_PLAIN); i += 1) {
    const character = name[i];
    if (character === '<') depth += 1;
    if (character === '>' && name[i - 1] !== '-') depth -= 1;
    const isNamespace = name.startsWith('(anonymous namespace)', i) || name.slice(0, i).endsWith('operator');
    if (character === '(' && depth <= 0 && i > 0 && !isNamespace) return name.slice(0, i);
  }
  return name;
}

// "orders::Transfer at demo_orders.cc:57"
export function placeInProgram(stack: Stack | undefined): string {
  const frame = programFrame(stack);
  return frame === undefined ? '' : frameInWords({ ...frame, function: plainName(nameOfFrame(frame)) });
}
