/** `#/databases/NAME/queries`: Mango queries, views, and the indexes of both. */
import { useLoad } from '../../api/load.ts'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import type { DatabasePartProps } from '../databases/database-part.ts'
import { FindPart } from './find-part.tsx'
import { IndexesPart } from './indexes-part.tsx'
import { mayChangeIndexes } from './rights.ts'
import { ViewPart } from './view-part.tsx'
import './queries.css'

const { sections: texts } = en.queries

const SECTIONS = [
  ['', texts.find],
  ['view', texts.view],
  ['indexes', texts.indexes],
] as const

export default function QueriesPart({ database, path, query }: DatabasePartProps) {
  const [section = ''] = path
  const rights = useLoad((signal) => mayChangeIndexes(database, signal), database)
  // While it is unknown, and when it cannot be known, nothing is hidden: the server decides.
  const mayChange = rights.data ?? true
  return (
    <div class="stack">
      <nav class="sections" aria-label={texts.label}>
        {SECTIONS.map(([segment, text]) => (
          <a
            key={segment}
            href={hashOf(['databases', database, 'queries', ...(segment === '' ? [] : [segment])])}
            aria-current={segment === section ? 'page' : undefined}
          >
            {text}
          </a>
        ))}
      </nav>
      {section === 'indexes' ? (
        <IndexesPart database={database} mayChange={mayChange} />
      ) : section === 'view' ? (
        <ViewPart database={database} asked={query} />
      ) : (
        <FindPart database={database} mayChange={mayChange} />
      )}
    </div>
  )
}
