import { useMemo } from 'preact/hooks';
import { printable } from '../text/printable';
import { count } from '../text/wording';
import { Text } from '../ui/text';
import type { DumpIndex } from './index';
import { type WaitGraph, waitGraphOf } from './wait_graph';
import { type PlacedEdge, type PlacedNode, pathOf, placed } from './wait_graph_layout';

const LINE_HEIGHT = 15;

// Lines around the origin, `step` apart.
function Lines(props: { lines: string[]; step: number; class: string }) {
  const top = -((props.lines.length - 1) * props.step) / 2;
  return (
    <>
      {props.lines.map((line, i) => (
        <text class={i === 0 ? props.class : `${props.class} second`} x={0} y={top + i * props.step}>
          {line}
        </text>
      ))}
    </>
  );
}

function NodeShape(props: { node: PlacedNode; addressOf: (tid: number) => string }) {
  const { node } = props;
  const [tid] = node.tids;
  const shape = (
    <g
      class={`node${node.isInCircle ? ' circle' : ''}${node.isLock ? ' lock' : ''}`}
      transform={`translate(${node.x},${node.y})`}
    >
      <rect x={-node.width / 2} y={-node.height / 2} width={node.width} height={node.height} rx={node.isLock ? 0 : 6} />
      <Lines lines={node.lines} step={LINE_HEIGHT} class="name" />
    </g>
  );
  return tid === undefined ? shape : <a href={props.addressOf(tid)}>{shape}</a>;
}

// The lock stands above the line, and below it where the thread waits.
function EdgeShape(props: { edge: PlacedEdge }) {
  const { edge } = props;
  const lines = edge.lines.length === 1 ? [...edge.lines, ''] : edge.lines;
  return (
    <g class={edge.isInCircle ? 'edge circle' : 'edge'}>
      <path d={pathOf(edge)} marker-end={edge.isInCircle ? 'url(#arrow-circle)' : 'url(#arrow)'} />
      <g transform={`translate(${edge.x},${edge.y})`}>
        <Lines lines={lines} step={20} class="lock" />
      </g>
    </g>
  );
}

function Arrow(props: { id: string }) {
  return (
    <marker
      id={props.id}
      viewBox="0 0 8 8"
      refX={7}
      refY={4}
      markerWidth={8}
      markerHeight={8}
      orient="auto-start-reverse"
    >
      <path d="M0,0L8,4L0,8z" />
    </marker>
  );
}

function GraphAsList(props: { graph: WaitGraph }) {
  const nodes = new Map(props.graph.nodes.map((node) => [node.id, node]));
  return (
    <ul class="waits">
      {props.graph.edges.map((edge) => {
        const from = nodes.get(edge.from);
        const to = nodes.get(edge.to);
        return (
          <li class={edge.isInCircle ? 'circle' : ''}>
            <Text value={`${from?.title} (${from?.subtitle})`} />
            {edge.where !== '' && (
              <>
                {' in '}
                <Text value={edge.where} />
              </>
            )}
            {' waits for '}
            <Text value={edge.lock} />
            {to?.isLock ? `: ${to.subtitle}` : ', held by '}
            {!to?.isLock && <Text value={`${to?.title} (${to?.subtitle})`} />}
            {edge.isInCircle && ' · in the circle'}
          </li>
        );
      })}
    </ul>
  );
}

function inWords(graph: WaitGraph): string {
  const circle = graph.nodes.filter((node) => node.isInCircle).map((node) => node.title);
  const what = `Wait graph of ${count(graph.nodes.length, 'node')} and ${count(graph.edges.length, 'wait')}.`;
  return printable(circle.length > 0 ? `${what} In the circle: ${circle.join(', ').slice(0, 300)}.` : what);
}

export function WaitGraphSection(props: { index: DumpIndex; addressOf: (tid: number) => string }) {
  const graph = useMemo(() => waitGraphOf(props.index), [props.index]);
  const picture = useMemo(() => placed(graph), [graph]);
  if (graph.edges.length === 0) return null;
  return (
    <section aria-labelledby="wait-graph">
      <h2 id="wait-graph">Who waits for whom</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so the keyboard must reach it */}
      <figure class="picture" aria-label="Wait graph" tabIndex={0}>
        <svg
          class="wait-graph"
          width={picture.width}
          height={picture.height}
          viewBox={`0 0 ${picture.width} ${picture.height}`}
        >
          <title>{inWords(graph)}</title>
          <defs>
            <Arrow id="arrow" />
            <Arrow id="arrow-circle" />
          </defs>
          {picture.edges.map((edge) => (
            <EdgeShape edge={edge} />
          ))}
          {picture.nodes.map((node) => (
            <NodeShape node={node} addressOf={props.addressOf} />
          ))}
        </svg>
      </figure>
      {graph.leftOutCount > 0 && (
        <p class="dim">{count(graph.leftOutCount, 'more waiting thread')} not drawn: see the threads below.</p>
      )}
      <details>
        <summary>The same as a list</summary>
        <GraphAsList graph={graph} />
      </details>
    </section>
  );
}
