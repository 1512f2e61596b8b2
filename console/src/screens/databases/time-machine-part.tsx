/**
 * The time machine: `time-machine` is what was overwritten and deleted, `time-machine/ID` the versions of one document, and
 * `?at=TIME` the way back of the whole database.
 */
import { useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { readDatabase } from './database-calls.ts'
import type { DatabasePartProps } from './database-part.ts'
import { DocumentVersions } from './document-versions.tsx'
import { RewindCard } from './rewind-card.tsx'
import { Timeline } from './timeline.tsx'
import './databases.css'
import './time-machine.css'

const texts = en.databases.timeMachine

export default function TimeMachinePart({ database, path, query }: DatabasePartProps) {
  const { data, failure, reload } = useLoad((signal) => readDatabase(database, signal), database)
  if (data === undefined) {
    return failure === null ? (
      <Card>
        <Skeleton lines={6} />
      </Card>
    ) : (
      <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />
    )
  }
  if (data.role !== 'admin') return <AdminsOnly />
  if (path.length > 0) {
    const id = path.join('/')
    return <DocumentVersions key={id} database={database} id={id} />
  }
  return <Whole key={JSON.stringify(query)} database={database} query={query} />
}

/** The timeline, and on request the way back of everything. */
function Whole({ database, query }: Pick<DatabasePartProps, 'database' | 'query'>) {
  const [isRewinding, setRewinding] = useState(query.at !== undefined)
  const actions = (
    <Button icon="restore" isExpanded={isRewinding} onClick={() => setRewinding(!isRewinding)}>
      {en.databases.rewind.open}
    </Button>
  )
  return (
    <div class="stack">
      {isRewinding && <RewindCard database={database} at={query.at} />}
      <Timeline database={database} query={query} actions={actions} />
    </div>
  )
}

/** In place of what only admins of the database may see. */
export function AdminsOnly() {
  return (
    <Notice tone="info" title={texts.mayNot}>
      <p>{texts.mayNotHelp}</p>
    </Notice>
  )
}
