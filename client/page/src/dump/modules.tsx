// Files of code in the process, and where their names came from.
import type { Module } from '../messages';
import { MoreButton, useGrowing } from '../ui/growing';
import { Empty } from '../ui/states';
import { Text } from '../ui/text';

export function Modules(props: { modules: Module[] }) {
  const list = useGrowing(props.modules, 200);
  if (props.modules.length === 0) return <Empty>No module is known.</Empty>;
  return (
    <>
      <table>
        <thead>
          <tr>
            <th scope="col">path</th>
            <th scope="col">symbols</th>
            <th scope="col">build-id</th>
            <th scope="col">address</th>
          </tr>
        </thead>
        <tbody>
          {list.shown.map((module) => (
            <tr>
              <td>
                <Text value={module.path} />
              </td>
              <td>
                <Text value={module.symbols} max={40} />
              </td>
              <td class="code">
                <Text value={module.buildId} max={64} />
              </td>
              <td class="code">
                <Text value={module.address} max={40} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <MoreButton list={list} noun="modules" />
    </>
  );
}
