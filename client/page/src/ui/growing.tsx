// Long lists in parts: what is not looked at yet costs nothing.
import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { grouped } from '../text/wording';

export interface Growing<T> {
  shown: T[];
  left: number;
  grow: () => void;
  end: RefObject<HTMLButtonElement | null>;
}

// The first `step` of `items`, and as many more each time that the end of the list comes near the screen.
export function useGrowing<T>(items: T[], step = 100): Growing<T> {
  const [state, setState] = useState({ items, size: step });
  const size = state.items === items ? state.size : step;
  const end = useRef<HTMLButtonElement>(null);
  const grow = () => setState({ items, size: size + step });
  const left = Math.max(0, items.length - size);
  useEffect(() => {
    if (end.current === null || left === 0) return;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && grow(), {
      rootMargin: '400px',
    });
    observer.observe(end.current);
    return () => observer.disconnect();
  }, [items, size]);
  return { shown: items.slice(0, size), left, grow, end };
}

export function MoreButton<T>(props: { list: Growing<T>; noun: string }) {
  const { left, grow, end } = props.list;
  if (left === 0) return null;
  return (
    <button type="button" class="more" ref={end} onClick={grow}>
      Show more: {grouped(left)} {props.noun} left
    </button>
  );
}
