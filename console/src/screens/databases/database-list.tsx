import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Page } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'

export function DatabaseList(_: Pick<Route, 'query'>) {
  const { data, failure, reload } = useLoad(
    (signal) => ask<readonly string[]>('_all_dbs', { signal }),
    'names',
  )
  return (
    <Page title={en.databases.title}>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton />}
      <ul>
        {data?.map((name) => (
          <li key={name}>
            <a href={hashOf(['databases', name])}>{name}</a>
          </li>
        ))}
      </ul>
    </Page>
  )
}
