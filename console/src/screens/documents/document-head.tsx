import type { ComponentChildren } from 'preact'
import { CopyButton } from '../../parts/copy-field.tsx'
import { Icon } from '../../parts/icon.tsx'
import { Badge } from '../../parts/notice.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import type { OpenDocument } from './document-text.ts'

const { documents: texts } = en

interface DocumentHeadProps {
  readonly database: string
  /** null: it is new. */
  readonly id: string | null
  readonly document?: OpenDocument
  /** Beside the id. */
  readonly children?: ComponentChildren
}

export function DocumentHead({ database, id, document, children }: DocumentHeadProps) {
  return (
    <header class="document-head">
      <a
        class="button is-quiet"
        href={hashOf(['databases', database, 'documents'])}
        aria-label={texts.toList}
        title={texts.toList}
      >
        <Icon name="back" />
      </a>
      <div class="document-name">
        {id === null ? <h2>{texts.newTitle}</h2> : <h2 class="is-code">{id}</h2>}
        {document?.rev && (
          <p class="fine document-rev">
            <span class="is-code">{document.rev}</span>
            {document.isDeleted && <Badge tone="bad">{texts.isDeleted}</Badge>}
          </p>
        )}
      </div>
      {id !== null && <CopyButton label={texts.theId} value={id} />}
      {children !== undefined && <div class="actions">{children}</div>}
    </header>
  )
}
