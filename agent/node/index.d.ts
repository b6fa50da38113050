export function install(): boolean;
export function nameThread(name: string): boolean;
export function nameProcess(name: string): boolean;
export function dumpNow(timeoutMs?: number): boolean;
export class Heartbeat {
  constructor(name: string, limitMs: number);
  beat(): void;
  suspend(): void;
  end(): void;
}
export function watchEventLoop(limitMs?: number): void;
export function dumpOnUncaughtExceptions(timeoutMs?: number): void;
