import time, json
from fix_world import one
import pytest
@pytest.mark.timeout(200)
def test_idle(conn, dsn, programs):
    conn.execute("create table public.business (run_id uuid, value int, primary key (run_id, value))")
    def fill(n):
        conn.execute("select count(r.run_id) from generate_series(1, %s) as n cross join lateral semel.run_start('p', 'asks', n::text) as r", (n,))
        conn.execute("""do $$ declare c record; w text; begin
          for c in select * from semel.run_claim('p','asks','w0',100000,interval '5 min') loop
            w := jsonb_build_array(jsonb_build_object('key','restart web','kind','approval','due','900 seconds','approval', jsonb_build_object('id',gen_random_uuid(),'title','restart web','action','{}'::jsonb,'digest','d','need',1)))::text;
            perform semel.run_park('p','w0',c.run_id,c.fence,w);
          end loop; end $$""")
        print(conn.execute("select status, count(*) from semel.runs group by 1").fetchall())
        conn.execute("vacuum analyze")
    programs.worker(program="durable.py")
    programs.upkeep()
    time.sleep(4)
    def stat():
        conn.execute("select pg_stat_force_next_flush()")
        return conn.execute("select xact_commit, blks_hit+blks_read, tup_returned, tup_fetched from pg_stat_database where datname=current_database()").fetchone()
    def look(label, secs=25):
        a=stat(); time.sleep(secs); b=stat()
        print(label, [round((y-x)/secs,1) for x,y in zip(a,b)], "per second: xacts, buffers, tup_returned, tup_fetched")
    time.sleep(12)
    look("none")
    fill(10000)
    time.sleep(12)
    look("10000")
    time.sleep(2)
    look("10000 again")
