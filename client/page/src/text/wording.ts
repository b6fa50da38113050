// Numbers, times and enums in words, as the daemon's text has them.
import type { Duration, Int64, Language, Process, Timestamp } from '../messages';

export function grouped(number: Int64): string {
  return Number(number).toLocaleString('en-US');
}

export function count(number: Int64, noun: string, plural = `${noun}s`): string {
  return `${grouped(number)} ${Number(number) === 1 ? noun : plural}`;
}

export function secondsOf(duration: Duration | undefined): number {
  return duration === undefined ? 0 : Number.parseFloat(duration) || 0;
}

// "3.0 s": two significant digits are what a person compares.
export function durationInWords(duration: Duration | undefined): string {
  const seconds = secondsOf(duration);
  const decimal = (value: number, unit: string) => `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ${unit}`;
  if (seconds < 1e-6) return `${Math.round(seconds * 1e9)} ns`;
  if (seconds < 1e-3) return decimal(seconds * 1e6, 'us');
  if (seconds < 1) return decimal(seconds * 1e3, 'ms');
  return seconds < 600 ? decimal(seconds, 's') : spanInWords(seconds);
}

// "5 min", "3 h", "12 d": the largest unit alone.
export function spanInWords(seconds: number): string {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function millisecondsOf(time: Timestamp | undefined): number {
  return time === undefined ? Number.NaN : Date.parse(time);
}

export function timeInWords(time: Timestamp | undefined): string {
  const milliseconds = millisecondsOf(time);
  if (Number.isNaN(milliseconds)) return 'at an unknown time';
  return `${new Date(milliseconds).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

// "20261123T204248698Z-1" of a dump's name as milliseconds since 1970; NaN where it is not of this form.
export function millisecondsOfDumpName(name: string): number {
  const parts = /\/dumps\/(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\d{3})Z/.exec(name);
  if (parts === null) return Number.NaN;
  const [year = 0, month = 0, day = 0, hour, minute, second, ms] = parts.slice(1).map(Number);
  return Date.UTC(year, month - 1, day, hour, minute, second, ms);
}

export function bytesInWords(bytes: Int64): string {
  const number = Number(bytes);
  if (number < 1024) return `${number} bytes`;
  if (number < 1024 * 1024) return `${(number / 1024).toFixed(0)} KiB`;
  return number < 1024 ** 3 ? `${(number / 1024 ** 2).toFixed(1)} MiB` : `${(number / 1024 ** 3).toFixed(1)} GiB`;
}

const LANGUAGES: Record<string, string> = {
  C_CPP: 'C/C++',
  RUST: 'Rust',
  GO: 'Go',
  PYTHON: 'Python',
  JAVA: 'Java',
  JAVASCRIPT: 'JavaScript',
  PHP: 'PHP',
  RUBY: 'Ruby',
};
export function languageInWords(language: Language | undefined): string {
  return LANGUAGES[language ?? ''] ?? 'native code';
}

const TASK_NOUNS: Record<string, string> = {
  GO: 'goroutine',
  PYTHON: 'asyncio task',
  RUST: 'tokio task',
  JAVA: 'virtual thread',
};
export function taskNoun(language: Language | undefined): string {
  return TASK_NOUNS[language ?? ''] ?? 'task';
}

const TRIGGERS: Record<string, string> = {
  REQUEST: 'on request',
  HANG: 'because of a hang',
  CRASH: 'because of a crash',
  SELF: 'asked for by the program',
};
export function triggerInWords(trigger: string | undefined): string {
  return TRIGGERS[trigger ?? ''] ?? 'for an unknown reason';
}

// "LOCK_CONVOY" as "lock convoy".
export function enumInWords(value: string | undefined): string {
  return (value ?? 'unspecified').toLowerCase().replaceAll('_', ' ');
}

// "pid 7 in container app of pod shop/checkout-0 on node-1"; outside of Kubernetes "pid 7 on HOST".
export function placeInWords(process: Process): string {
  const attributes = process.resourceAttributes ?? {};
  const pod = attributes['k8s.pod.name'];
  const container = attributes['k8s.container.name'];
  const space = attributes['k8s.namespace.name'];
  let text = `pid ${process.pid ?? 0}`;
  if (container) text += ` in container ${container}`;
  if (pod) text += `${container ? ' of pod ' : ' in pod '}${space ? `${space}/` : ''}${pod}`;
  const host = pod ? attributes['k8s.node.name'] : process.hostname;
  return host ? `${text} on ${host}` : text;
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
