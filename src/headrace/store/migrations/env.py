"""Run by Alembic: its migrations happen in the transaction that the caller has begun."""

from alembic import context

from headrace.store.tables import metadata


def run() -> None:
    """Run the migrations that Alembic has chosen."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        render_as_batch=True,  # SQLite changes a column only by recreating its table
    )
    with context.begin_transaction():
        context.run_migrations()


if __name__ == "env_py":  # the name that Alembic gives it; else it is only imported
    run()
