"""The end-to-end cases of tests/run.sh --quick: one for each promise and each thing that an operator does."""

CASES = {
    # Harmless
    "harmless_test.HarmlessTest.test_memcached",
    "crash_harmless_test.CrashHarmlessTest.test_a_crash_after_faults_that_were_recovered_is_the_one_that_counts",
    "order_test.OrderTest.test_no_daemon_ever",
    "order_test.OrderTest.test_disabled_by_environment",
    # Nothing lost silently
    "accounted_test.AccountedTest.test_1000_threads",
    "accounted_test.AccountedTest.test_a_thread_that_blocks_all_signals_is_told_apart_and_waited_for_by_nobody",
    "crash_loss_test.CrashLossTest.test_without_a_daemon_crashes_wait_in_the_spool",
    "crash_time_test.CrashTimeTest.test_daemon_killed",
    "order_test.OrderTest.test_dumps_survive_the_death_of_the_daemon",
    "skew_test.SkewTest.test_agents_of_another_abi_are_told_so",
    # No privilege
    "privilege_test.PrivilegeTest.test_dump_is_the_same_across_namespaces_and_users",
    "impostor_test.ImpostorTest.test_the_agent",
    "access_test.AccessTest.test_users_at_the_unix_socket_have_the_roles_of_their_uids",
    "access_test.AccessTest.test_roles_of_certificates_are_cumulative",
    # No secrets
    "secrets_test.SecretsTest.test_planted_secret_is_in_no_byte_that_leaves_the_process",
    "secrets_test.SecretsTest.test_planted_secret_is_in_no_byte_of_a_crash",
    # Any language
    "right_test.RightTest.test_c",
    "right_test.RightTest.test_vdso",
    "python_test.FramesTest.test_each_thread_has_the_frames_that_py_spy_gives_it",
    "node_test.Frames.test_a_blocked_call_has_the_frames_that_an_error_has",
    "java_test.JavaTest.test_every_thread_that_stands_still_has_the_frames_that_jstack_has",
    "go_test.GoTest.test_running_goroutines_are_seen_on_their_threads",
    "rust_test.RustTest.test_the_kill_switch_leaves_the_program_alone",
    "php_test.FramesTest.test_frames_are_those_of_debug_backtrace",
    "ruby_test.FramesTest.test_frames_are_those_of_caller_locations",
    "musl_test.MuslTest.test_a_crash_in_the_library_has_its_caller",
    # Crashes
    "crash_victims_test.CrashVictimsTest.test_deaths_in_cpp",
    "crash_victims_test.CrashVictimsTest.test_stack_overflow_by_one_big_frame",
    "groups_test.GroupsTest.test_two_builds_that_crash_alike_are_one_group",
    # Hangs
    "hang_victims_test.HangVictimsTest.test_mutex_cycle_2",
    "hang_victims_test.HangVictimsTest.test_sync_once_recursion",
    "hang_victims_test.HangVictimsTest.test_cpp_starved_pool",
    "hang_victims_test.HangVictimsTest.test_not_hung_idle_event_loops",
    "hang_victims_test.HangVictimsTest.test_not_hung_idle_condition_variable_pools",
    "hang_detection_test.HangDetectionTest.test_a_missed_heartbeat_is_dumped_in_time",
    "hang_detection_test.HangDetectionTest.test_health_changes_when_the_dump_is_stored_and_back",
    "diff_test.DiffTest.test_deadlocked",
    # The API, the client, what is deployed
    "grpcurl_test.GrpcurlTest.test_text_view_is_lines_for_people",
    "fleet_test.FleetTest.test_pods_come_and_go_without_a_restart",
    "web_test.AnswersTest.test_curl_needs_nothing_but_a_body_and_a_type",
    "web_test.BrowserTest.test_other_sites_and_names_that_were_rebound_are_refused_and_audited",
    "bad_input_test.RequestTest.test_usage_errors_of_the_client",
    "bad_input_test.StartTest.test_bad_flags",
    "overload_test.OverloadTest.test_100_calls_for_a_dump_share_one_capture",
    "metrics_test.MetricsTest.test_a_crash_moves_its_counters",
    "history_test.HistoryTest.test_crashes_are_listed_and_dumps_open_when_pods_are_gone",
    "otlp_test.WhereTest.test_each_dump_says_where",
    "on_dump_test.OnDumpTest.test_the_program_finds_the_crash_by_name_and_asks_the_daemon_for_it",
    "minidump_test.MinidumpTest.test_cpp",
    "manifests_test.HelmTest.test_the_rendered_examples_are_what_the_chart_gives",
    "pod_test.CrunTest.test_restarted_sidecar",
    "version_test.VersionTest.test_it_is_the_same_in_all_places",
}
