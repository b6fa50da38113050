// Deep links: the view is in the fragment, "#/dumps/PROCESS/DUMP?tab=flame". The server never sees it.
import { useEffect, useState } from 'preact/hooks';

export interface Route {
  path: string[];
  query: URLSearchParams;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parseRoute(fragment: string): Route {
  const [path = '', query = ''] = fragment.replace(/^#?\/?/, '').split(/\?(.*)/s);
  const parts = path.split('/').filter((part) => part !== '');
  return { path: parts.map(decoded), query: new URLSearchParams(query) };
}

export function formatRoute(path: string[], query: Record<string, string> = {}): string {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== '')).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${search === '' ? '' : `?${search}`}`;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = () => setRoute(parseRoute(location.hash));
    addEventListener('hashchange', follow);
    return () => removeEventListener('hashchange', follow);
  }, []);
  return route;
}

export function go(address: string): void {
  location.hash = address;
}

// Changes the query of the address that is shown, without a new entry in the history.
export function replaceQuery(route: Route, changes: Record<string, string>): void {
  history.replaceState(null, '', formatRoute(route.path, { ...Object.fromEntries(route.query), ...changes }));
  dispatchEvent(new HashChangeEvent('hashchange'));
}

// "processes/7-8/dumps/2026" as ["7-8", "2026"].
export function idsOfDump(name: string): [string, string] {
  const [, process = '', , dump = ''] = name.split('/');
  return [process, dump];
}

export function nameOfDump(process: string, dump: string): string {
  return `processes/${process}/dumps/${dump}`;
}

// With `of` the dump is of this target of the fleet: "targets/shop/checkout-1".
export function addressOfDump(name: string, query: Record<string, string> = {}): string {
  return formatRoute(['dumps', ...idsOfDump(name)], query);
}
