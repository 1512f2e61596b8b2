/** The documents of a database, as a list of any length. */
import { useEffect, useState } from 'preact/hooks'
import { Button, LinkButton } from '../../parts/button.tsx'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { DocumentRows } from './document-rows.tsx'
import type { ListKind } from './id-rows.ts'
import { LivePanel } from './live-panel.tsx'
import { useRows } from './use-rows.ts'

const { documents: texts } = en
const KINDS: readonly ListKind[] = ['all', 'conflicts', 'design', 'local']
/** How long the user must pause before what they typed is searched, in ms. */
const PAUSE_MS = 250

interface DocumentListProps {
  readonly database: string
  readonly query: Readonly<Record<string, string>>
}

export function DocumentList({ database, query }: DocumentListProps) {
  const kind = KINDS.find((each) => each === query.show) ?? 'all'
  const prefix = query.prefix ?? ''
  const key = hashOf(['databases', database, 'documents'], query)
  const [isLive, setLive] = useState(false)
  const [isStale, setStale] = useState(false)
  const { source, failure, isLoading, isCut, reload, searchOn } = useRows(database, kind, prefix)
  useEffect(() => setStale(false), [key])
  const refresh = () => {
    setStale(false)
    reload()
  }
  return (
    <div class={isLive ? 'documents has-live' : 'documents'}>
      <section class="documents-main" aria-label={en.documents.title}>
        <Toolbar
          database={database}
          kind={kind}
          prefix={prefix}
          isLive={isLive}
          onLive={() => setLive(!isLive)}
        />
        {failure !== null && <ErrorNotice failure={failure} title={texts.notRead} onRetry={refresh} />}
        {source === null ? (
          failure === null && <Skeleton lines={10} />
        ) : (
          <DocumentRows
            key={key}
            address={key}
            database={database}
            kind={kind}
            prefix={prefix}
            source={source}
            isLoading={isLoading}
            isStale={isStale}
            onRefresh={refresh}
          />
        )}
        {isCut && <p class="fine">{texts.localsCut}</p>}
        {searchOn !== null && (
          <div class="row">
            <span class="fine">{texts.conflictsCut}</span>
            <Button isSmall onClick={searchOn}>
              {texts.searchOn}
            </Button>
          </div>
        )}
      </section>
      {isLive && (
        <LivePanel database={database} onClose={() => setLive(false)} onChanges={() => setStale(true)} />
      )}
    </div>
  )
}

interface ToolbarProps {
  readonly database: string
  readonly kind: ListKind
  readonly prefix: string
  readonly isLive: boolean
  readonly onLive: () => void
}

function Toolbar({ database, kind, prefix, isLive, onLive }: ToolbarProps) {
  const [text, setText] = useState(prefix)
  useEffect(() => setText(prefix), [prefix])
  const show = (next: ListKind, sought: string) =>
    go(
      hashOf(['databases', database, 'documents'], {
        show: next === 'all' ? undefined : next,
        prefix: sought === '' || next === 'conflicts' ? undefined : sought,
      }),
      { replaces: true },
    )
  useEffect(() => {
    if (text === prefix) return undefined
    const timer = setTimeout(() => show(kind, text), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [text])
  return (
    <form
      class="documents-bar"
      onSubmit={(event) => {
        event.preventDefault()
        if (text !== '') go(hashOf(['databases', database, 'documents', text]))
      }}
    >
      <input
        type="search"
        class="is-code documents-search"
        aria-label={texts.searchLabel}
        placeholder={texts.searchPlaceholder}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        value={text}
        disabled={kind === 'conflicts'}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <select
        class="documents-kind"
        aria-label={texts.kindLabel}
        value={kind}
        onChange={(event) => show(event.currentTarget.value as ListKind, '')}
      >
        {KINDS.map((each) => (
          <option key={each} value={each} selected={each === kind}>
            {texts.kinds[each]}
          </option>
        ))}
      </select>
      {text !== '' && (
        <Button type="submit" icon="next">
          {texts.openId}
        </Button>
      )}
      <Button isPressed={isLive} icon={isLive ? 'pause' : 'play'} onClick={onLive}>
        {texts.live}
      </Button>
      <LinkButton
        kind="primary"
        icon="plus"
        href={hashOf(['databases', database, 'documents'], { new: '1' })}
      >
        {texts.newDocument}
      </LinkButton>
    </form>
  )
}
