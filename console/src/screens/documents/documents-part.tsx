/** `#/databases/NAME/documents` is the list; below it, one document. */
import type { DatabasePartProps } from '../databases/database-part.ts'
import { ConflictsPage } from './conflicts-page.tsx'
import { DocumentList } from './document-list.tsx'
import { DocumentPage } from './document-page.tsx'
import { NewDocument } from './new-document.tsx'
import './documents.css'
import './document.css'

export default function DocumentsPart({ database, path, query }: DatabasePartProps) {
  const id = path.join('/')
  if (id !== '') {
    return query.conflict === undefined ? (
      <DocumentPage key={id} database={database} id={id} rev={query.rev} />
    ) : (
      <ConflictsPage key={id} database={database} id={id} />
    )
  }
  if (query.new !== undefined) return <NewDocument database={database} id={query.id ?? ''} />
  return <DocumentList database={database} query={query} />
}
